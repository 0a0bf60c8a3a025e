"""What PROL+ keeps: classes it has not seen, and bytes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from prol.runs.counting import count_parameters
from small_prol_plus import TASKS, WHOLE, answers, begin_early, make, teach
from small_streams import pictures, same_state, tensors

from prol.backbones import ViT, open_backbone
from prol.learner import Amount
from prol.methods.prol_plus.class_covariances import packed_length
from prol.methods.prol_plus.learner import PROLPlus

TEST = pictures(list(range(6)), seed=7)


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_early(monkeypatch)


def test_before_anything_is_learnt_there_is_a_column_for_each_announced_class(tiny: ViT) -> None:
    learner = make(tiny)
    assert learner.predict(TEST).shape == (6, 0)
    learner.boundary()
    learner.boundary([0, 1])
    assert torch.equal(learner.predict(TEST), torch.full((6, 2), -torch.inf))


@pytest.mark.parametrize("adapt_steps", [0, 3])
@pytest.mark.parametrize("own", [{}, WHOLE], ids=["some directions", "all directions"])
def test_copies_are_learnt_and_told_apart(tiny: ViT, adapt_steps: int, own: dict[str, Any]) -> None:
    learner, three = make(tiny, adapt_steps=adapt_steps, **own), pictures([0, 1, 2])
    learner.learn([three[0], three[0]], [0, 0])
    for _ in range(10):
        learner.learn(three, [0, 1, 2])
        assert learner.predict(three).isfinite().all()
    assert learner.predict(three).argmax(1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("adapt_steps", [0, 200])
@pytest.mark.parametrize("features", [20, 0])
def test_after_copies_of_one_image_it_can_be_asked_and_others_may_follow(
    tiny: ViT, adapt_steps: int, features: int
) -> None:
    """They set a scale at which their own features, but for random ones, are all zero."""
    learner, three = make(tiny, adapt_steps=adapt_steps, features=features), pictures([0, 1, 2])
    learner.learn([three[0]] * 9, [0] * 9)
    assert learner.predict(three).isfinite().all()
    for step in range(4):
        learner.learn(pictures([0, 1, 2], seed=step), [0, 1, 2])
    assert answers(learner)[:3] == [0, 1, 2]


@pytest.mark.parametrize("adapt_steps", [0, 2, 200])
@pytest.mark.parametrize("own", [{}, WHOLE], ids=["some directions", "all directions"])
def test_an_announced_class_of_which_nothing_was_seen_never_wins(
    tiny: ViT, adapt_steps: int, own: dict[str, Any]
) -> None:
    learner = make(tiny, adapt_steps=adapt_steps, **own)
    learner.boundary(["ghost", 0, "spirit", 1])
    for step in range(4):
        learner.learn(pictures([0, 1, 0, 1], seed=step), [0, 1, 0, 1])
    scores = learner.predict(pictures(list(range(20))))
    assert set(scores.argmax(1).tolist()) <= {1, 3}
    assert (scores[:, [0, 2]] == -torch.inf).all()
    assert scores[:, [1, 3]].isfinite().all()
    learner.boundary(["spectre"])
    assert (learner.predict(TEST)[:, 4] == -torch.inf).all()
    assert torch.equal(learner.predict(pictures(list(range(20))))[:, :4], scores)


@pytest.mark.parametrize("adapt_steps", [0, 200])
@pytest.mark.parametrize("own", [{}, WHOLE], ids=["some directions", "all directions"])
def test_a_single_class_is_scored_and_others_may_follow(tiny: ViT, adapt_steps: int, own: dict[str, Any]) -> None:
    learner = make(tiny, adapt_steps=adapt_steps, **own)
    for step in range(12):
        learner.learn(pictures([0] * 4, seed=step), [0] * 4)
    scores = learner.predict(TEST)
    assert scores.shape == (6, 1)
    assert scores.isfinite().all()
    for step in range(3):
        learner.learn(pictures([1, 0, 1], seed=step), [1, 0, 1])
    assert answers(learner)[:2] == [0, 1]


@pytest.mark.parametrize("options", [{"adapt_steps": 0}, {"adapt_steps": 8}, {"adapt_steps": 100}, WHOLE], ids=str)
def test_one_image_at_a_time_is_enough_and_it_can_be_asked_after_each(tiny: ViT, options: dict[str, Any]) -> None:
    learner = make(tiny, **options)
    for step in range(20):
        for kind in range(6):
            learner.learn(pictures([kind], seed=step), [kind])
            if step < 5:
                assert learner.predict(TEST).isfinite().all()
    assert answers(learner) == [0, 1, 2, 3, 4, 5]
    scores = torch.cat([learner.predict(TEST[[number]]) for number in range(6)])
    torch.testing.assert_close(scores, learner.predict(TEST), rtol=1e-4, atol=1e-2)


def test_with_more_classes_each_has_fewer_directions_of_its_own(tiny: ViT) -> None:
    learner = make(tiny, own=20, adapt_steps=0)
    assert learner.own is not None
    room = learner.widths.own_room
    learner.boundary(list(range(100)))
    assert learner.own.width == 20
    for step in range(8):
        learner.learn(pictures([0, 1, 2] * 3, seed=step), [0, 1, 2] * 3)
    before = learner.own.table.rows.clone()
    assert before[:3].abs().min() > 0
    learner.boundary(list(range(100, 800)))
    rows, width = learner.own.table.rows, learner.own.width
    assert 4 * rows.numel() <= room < 4 * 800 * packed_length(width + 1)
    assert width < 20
    assert torch.equal(rows[:100], before[:, : packed_length(width)])
    assert not rows[100:].any()
    learner.learn(pictures([0, 1, 2] * 3, seed=8), [0, 1, 2] * 3)
    assert answers(learner)[:3] == [0, 1, 2]


@pytest.mark.parametrize(("options", "own"), [({}, 6), (WHOLE, 128), ({"own": 0}, 0)], ids=str)
def test_it_keeps_statistics_and_no_sample(tiny: ViT, options: dict[str, Any], own: int) -> None:
    """Nor directions, where own covariances are in all of them."""
    learner = teach(make(tiny, **options))
    found, linear = learner.footprint(), 2 * tiny.width
    gram = sum(block.numel() for block in learner.moments.blocks)
    assert (linear + 20) * (linear + 21) / 2 <= gram <= (linear + 20) * (linear + 20 + learner.widths.stripe) / 2
    single, double = gram + 6 * (linear + 20) + (6 * packed_length(own) if own else 0), 6
    assert found.statistics_stored == Amount(single + double, 4 * single + 8 * double)
    norms = sum(p.numel() for p in tiny.fork("norms").trained().values())
    directions = own * linear if own < linear else 0
    single = 2 * linear + directions + 6 * (linear + 21)  # the scale, own directions and the solved head
    assert found.parameters_stored == Amount(norms + single, 8 * norms + 4 * single)
    assert found.samples_stored == found.trained_now == Amount(0, 0)


@pytest.mark.parametrize(
    "options",
    [
        *({"budget_mb": budget_mb} for budget_mb in (4, 16, 64, 128)),
        {"budget_mb": 64, "blocks": 1},
        {"budget_mb": 54, "blocks": 1},
        {"budget_mb": 64, "blocks": 1, "own": 0},
    ],
    ids=str,
)
def test_at_a_hundred_classes_the_built_in_backbones_statistics_fill_the_budget(options: dict[str, Any]) -> None:
    """Sums, own covariances, the solved head, the scale and what directions there are; 54.04 MB hold all of these."""
    budget = options["budget_mb"] * 1e6
    widths = PROLPlus(open_backbone("builtin", shapes_only=True), PROLPlus.read_options(options)).widths
    assert (widths.own == widths.linear) == (options == {"budget_mb": 64, "blocks": 1})
    found = count_parameters("prol_plus", options, "builtin", 100, 10)
    used = found["during_last_task"]["statistics_stored"]["bytes"]
    directions = widths.linear * widths.own if widths.own < widths.linear else 0
    rest = 100 * (widths.all + 1) + 2 * widths.linear + directions
    # for 100 biases and float64 counts there is what block rows do not take of their share
    assert 0.99 * budget < used + 4 * rest <= budget
    assert found["during_last_task"]["trained_now"] == {"count": 0, "bytes": 0}
    assert found["during_first_task"]["trained_now"]["count"] == (4 * 12 + 2) * 192 + 10 * 193


@pytest.mark.parametrize("options", [{}, {"blocks": 1}], ids=["some directions", "all directions"])
def test_beyond_a_hundred_classes_own_covariances_take_no_more(options: dict[str, Any]) -> None:
    learner = PROLPlus(open_backbone("builtin", shapes_only=True), PROLPlus.read_options(options))
    assert learner.own is not None
    assert (learner.widths.own == learner.widths.linear) == bool(options)
    used = []
    for classes in (100, 400, 1000):
        learner.boundary(list(range(len(learner.classes), classes)))
        used.append(Amount.of(learner.own.table.rows).bytes)
    assert max(used) <= learner.widths.own_room
    assert min(used) > 0.95 * learner.widths.own_room


def test_asking_changes_nothing(tiny: ViT) -> None:
    asked, silent = make(tiny), make(tiny)
    for classes in TASKS:
        for step in range(5):
            for learner in (asked, silent):
                learner.learn(pictures(classes * 3, seed=step), classes * 3)
            before, _ = asked.predict(TEST), asked.predict(TEST[:1])
            assert torch.equal(asked.predict(TEST), before)
            assert same_state(asked, silent)
    assert torch.equal(asked.predict(TEST), silent.predict(TEST))
    assert tensors(asked).keys() == tensors(silent).keys()


def test_a_backbone_without_blocks_is_refused(tiny: ViT) -> None:
    class NoViT:
        preprocessing, device = tiny.preprocessing, tiny.device

    with pytest.raises(ValueError, match="method prol_plus needs a ViT as backbone, got NoViT"):
        PROLPlus(NoViT(), PROLPlus.read_options({}))  # type: ignore[arg-type]
