"""PROL+'s options, how its budget is divided, and what it stores."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prol.methods.prol_plus.class_covariances import packed_length

from methods.prol_plus.small_prol_plus import WHOLE, begin_early, make, predictions, teach
from methods.small_streams import pictures
from prol.backbones import ResNet, ViT, open_backbone
from prol.learner import Amount
from prol.methods.prol_plus.learner import PROLPlus
from prol.methods.prol_plus.options import (
    NUMBER,
    PLANNED_CLASSES,
    PROLPlusOptions,
    Widths,
    plan,
)
from prol.runs.inspection import count_parameters

MOST_LINEAR = 0.6
"""Of all features those that may be the blocks' own; the rest are random."""


def divide(width: int, depth: int = 12, **options: Any) -> Widths:
    return plan(PROLPlusOptions(**options), (2 * width,) * depth)


def gram_bytes(found: Widths) -> int:
    """Block rows from the first column to the diagonal, as they are stored."""
    edges = [*range(0, found.all, found.stripe), found.all]
    return NUMBER * sum((end - start) * end for start, end in pairwise(edges))


def test_the_built_in_backbone_has_all_the_blocks_asked_for() -> None:
    found = divide(192)
    assert (found.blocks, found.linear) == (6, 2304)
    assert found.random > 1000
    assert found.own > 192


def test_a_wide_backbone_has_fewer_blocks() -> None:
    narrow, wide = divide(192), divide(768)
    assert wide.blocks < narrow.blocks
    assert wide.linear == 2 * 768 * wide.blocks
    assert wide.all >= narrow.all
    assert wide.own == narrow.own


def numbers_for(found: Widths) -> int:
    """At the planned classes: products, sums and solved head, class covariances, and the scale and directions."""
    by_class = 2 * found.all + (packed_length(found.own) if found.own else 0)
    directions = found.linear * found.own if found.own < found.linear else 0
    return gram_bytes(found) // NUMBER + PLANNED_CLASSES * by_class + directions + 2 * found.linear


def own_width(budget_mb: float, linear: int, asked: int | None) -> int:
    """All directions where 0.55 of the budget holds them at the planned classes, else as many as a third holds."""
    shares = (share * budget_mb * 1e6 / NUMBER / PLANNED_CLASSES for share in (1 / 3, 0.55))
    third, more = (sum(packed_length(width) <= int(share) for width in range(1, 1200)) for share in shares)
    most = linear if more >= linear else third
    return most if asked is None else min(asked, most)


@given(
    budget_mb=st.floats(0.5, 200),
    width=st.sampled_from([16, 64, 192, 384]),
    depth=st.integers(1, 24),
    blocks=st.sampled_from([1, 2, 6]),
    asked=st.sampled_from([None, 0, 50, 400]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_products_and_class_covariances_leave_the_rest(
    budget_mb: float, width: int, depth: int, blocks: int, asked: int | None
) -> None:
    try:
        found = divide(width, depth, budget_mb=budget_mb, class_directions=asked, blocks=blocks)
    except ValueError:
        assert budget_mb < 9
        return
    budget, most = budget_mb * 1e6, min(blocks, depth)
    assert NUMBER * numbers_for(found) <= budget
    assert found.own == own_width(budget_mb, found.linear, asked)
    assert found.own_room == (NUMBER * PLANNED_CLASSES * packed_length(found.own) if found.own else 0)
    total = found.all + 1  # one feature more does not fit
    linear = 2 * width * min(most, int(MOST_LINEAR * total) // (2 * width))
    own = own_width(budget_mb, linear, asked)
    gram, by_class = total * (total + found.stripe) // 2, 2 * total + packed_length(own)
    more = gram + PLANNED_CLASSES * by_class + (linear * own if own < linear else 0) + 2 * linear
    assert NUMBER * (more + 1) > budget
    assert 1 <= found.blocks <= most
    assert found.linear == 2 * width * found.blocks <= MOST_LINEAR * found.all
    assert found.random >= (1 - MOST_LINEAR) * found.all
    if found.blocks < most:
        assert 2 * width * (found.blocks + 1) > int(MOST_LINEAR * found.all)


def test_a_class_has_all_directions_where_a_little_over_half_the_budget_holds_them() -> None:
    """One block of width 192: a hundred classes' products of 384 features are 0.55 of 54.04 MB."""
    assert NUMBER * PLANNED_CLASSES * packed_length(384) / 0.55 == pytest.approx(54.04e6, abs=1e3)
    whole, less = (divide(192, blocks=1, budget_mb=budget_mb) for budget_mb in (54.05, 54.03))
    assert (whole.linear, whole.own) == (384, 384)
    assert (less.linear, less.own) == (384, 298)
    assert packed_length(298) <= 54.03e6 / NUMBER / 3 / PLANNED_CLASSES < packed_length(299)
    assert whole.own_room > 1.6 * less.own_room
    assert whole.random < less.random


@pytest.mark.parametrize(("asked", "own"), [(383, 383), (384, 384), (9999, 384), (10, 10)])
def test_of_all_directions_fewer_may_be_asked_for_and_are_stored(asked: int, own: int) -> None:
    found = divide(192, blocks=1, class_directions=asked)
    assert found.own == own
    spare = 64e6 - NUMBER * numbers_for(found)
    assert 0 <= spare < NUMBER * (3 * found.all + 100)  # not enough for a feature more, with half a block row to spare


@pytest.mark.parametrize(("own", "expected"), [(0, 0), (10, 10), (300, 300), (9999, 325)])
def test_directions_of_a_class_are_at_most_as_many_as_their_share_holds(own: int, expected: int) -> None:
    assert divide(192, class_directions=own).own == expected


def test_without_class_covariances_there_are_more_random_features() -> None:
    assert divide(192, class_directions=0).random > divide(192, class_directions=100).random > divide(192).random
    assert divide(192, class_directions=0).own_room == 0


def test_a_larger_budget_has_more_of_everything() -> None:
    small, large = divide(192, budget_mb=4), divide(192, budget_mb=40)
    assert small.blocks < large.blocks
    assert small.all < large.all
    assert small.own < large.own


def test_given_features_and_blocks_are_taken() -> None:
    found = divide(192, features=100, blocks=2)
    assert (found.random, found.blocks, found.all) == (100, 2, 868)
    assert divide(192, features=0).all == divide(192).linear
    assert divide(192, depth=3).blocks == 3


@pytest.mark.parametrize("width", [192, 384, 768, 1024])
def test_a_budget_that_holds_no_block_is_refused_and_the_one_named_is_enough(width: int) -> None:
    with pytest.raises(ValueError, match=f"budget_mb 0.5 does not hold .* one block's {2 * width} features") as refusal:
        divide(width, budget_mb=0.5)
    named = re.search(r"give ([\d.]+) or more", str(refusal.value))
    assert named is not None
    least = float(named[1])
    assert least > 0.5
    assert divide(width, budget_mb=least).blocks == 1
    with pytest.raises(ValueError, match="does not hold"):
        divide(width, budget_mb=0.9 * least)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget_mb": 0}, "budget_mb must be a finite number above 0, got 0"),
        ({"budget_mb": "inf"}, "budget_mb must be a finite number above 0, got inf"),
        ({"features": -1}, "features must be at least 0, or none, got -1"),
        ({"class_directions": -1}, "class_directions must be at least 0, or none, got -1"),
        ({"blocks": 0}, "blocks must be at least 1, got 0"),
        ({"bandwidth": 0}, "bandwidth must be a finite number above 0, got 0"),
        ({"prior_weight": -1}, "prior_weight must be a finite number above 0, got -1"),
        ({"shrinkage_factor": 0}, "shrinkage_factor must be a finite number above 0, got 0"),
        ({"penalty": 0}, "penalty must be a finite number above 0, or none, got 0"),
        ({"penalty": -0.1}, "penalty must be a finite number above 0, or none, got -0.1"),
        ({"penalty": "inf"}, "penalty must be a finite number above 0, or none, got inf"),
        ({"penalty": "nan"}, "option penalty='nan' is not valid"),
        ({"shrinkage_factor": "inf"}, "shrinkage_factor must be a finite number above 0, got inf"),
        ({"adapt_steps": -1}, "adapt_steps must be at least 0, got -1"),
        ({"adapt_lr": -1}, "adapt_lr must be a finite number above 0, got -1"),
        ({"task_min_classes": 0}, "task_min_classes must be at least 1, got 0"),
        ({"task_min_steps": 0}, "task_min_steps must be at least 1, got 0"),
        ({"stride": 3}, "unknown option 'stride'"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PROLPlus.read_options(options)


def test_the_least_that_is_possible_is_taken() -> None:
    least = {"features": 0, "class_directions": 0, "adapt_steps": 0, "blocks": 1}
    options = PROLPlus.read_options(least)
    assert {name: getattr(options, name) for name in least} == least


def test_a_penalty_and_drift_correction_can_be_set_as_text() -> None:
    usual, other = (
        PROLPlus.read_options({}),
        PROLPlus.read_options({"penalty": "0.05", "drift_correction": "false", "shrink_means": "no"}),
    )
    assert (usual.penalty, usual.drift_correction, usual.shrink_means) == (None, True, True)
    assert (other.penalty, other.drift_correction, other.shrink_means) == (0.05, False, False)


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
def test_copies_are_learnt_and_distinguished(tiny: ViT, adapt_steps: int, own: dict[str, Any]) -> None:
    learner, three = make(tiny, adapt_steps=adapt_steps, **own), pictures([0, 1, 2])
    learner.learn([three[0], three[0]], [0, 0])
    for _ in range(10):
        learner.learn(three, [0, 1, 2])
        assert learner.predict(three).isfinite().all()
    assert learner.predict(three).argmax(1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("adapt_steps", [0, 200])
@pytest.mark.parametrize("features", [20, 0])
def test_after_copies_of_one_image_it_can_predict_and_others_may_follow(
    tiny: ViT, adapt_steps: int, features: int
) -> None:
    """They set a scale at which their own features, but for random ones, are all zero."""
    learner, three = make(tiny, adapt_steps=adapt_steps, features=features), pictures([0, 1, 2])
    learner.learn([three[0]] * 9, [0] * 9)
    assert learner.predict(three).isfinite().all()
    for step in range(4):
        learner.learn(pictures([0, 1, 2], seed=step), [0, 1, 2])
    assert predictions(learner)[:3] == [0, 1, 2]


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
    assert predictions(learner)[:2] == [0, 1]


@pytest.mark.parametrize(
    "options",
    [{"adapt_steps": 8}, *(pytest.param(one, marks=pytest.mark.slow) for one in ({"adapt_steps": 0}, {}, WHOLE))],
    ids=str,
)
def test_one_image_at_a_time_is_enough_and_it_can_predict_after_each(tiny: ViT, options: dict[str, Any]) -> None:
    learner = make(tiny, **options)
    for step in range(20):
        for kind in range(6):
            learner.learn(pictures([kind], seed=step), [kind])
            if step < 5:
                assert learner.predict(TEST).isfinite().all()
    assert predictions(learner) == [0, 1, 2, 3, 4, 5]
    scores = torch.cat([learner.predict(TEST[[number]]) for number in range(6)])
    torch.testing.assert_close(scores, learner.predict(TEST), rtol=1e-4, atol=1e-2)


def test_with_more_classes_each_has_fewer_directions_of_its_own(tiny: ViT) -> None:
    learner = make(tiny, class_directions=20, adapt_steps=0)
    assert learner.covariances is not None
    room = learner.widths.own_room
    learner.boundary(list(range(100)))
    assert learner.covariances.width == 20
    for step in range(8):
        learner.learn(pictures([0, 1, 2] * 3, seed=step), [0, 1, 2] * 3)
    before = learner.covariances.table.rows.clone()
    assert before[:3].abs().min() > 0
    learner.boundary(list(range(100, 800)))
    rows, width = learner.covariances.table.rows, learner.covariances.width
    assert 4 * rows.numel() <= room < 4 * 800 * packed_length(width + 1)
    assert width < 20
    assert torch.equal(rows[:100], before[:, : packed_length(width)])
    assert not rows[100:].any()
    learner.learn(pictures([0, 1, 2] * 3, seed=8), [0, 1, 2] * 3)
    assert predictions(learner)[:3] == [0, 1, 2]


@pytest.mark.parametrize(("options", "own"), [({}, 6), (WHOLE, 128), ({"class_directions": 0}, 0)], ids=str)
def test_it_stores_statistics_and_no_sample(tiny: ViT, options: dict[str, Any], own: int) -> None:
    """Nor directions, where class covariances are in all of them."""
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
        {"budget_mb": 64, "blocks": 1, "class_directions": 0},
    ],
    ids=str,
)
def test_at_a_hundred_classes_the_tiny_backbones_statistics_fill_the_budget(options: dict[str, Any]) -> None:
    """Sums, class covariances, the solved head, the scale and what directions there are; 54.04 MB hold all of these."""
    budget = options["budget_mb"] * 1e6
    widths = PROLPlus(open_backbone("tiny", shapes_only=True), PROLPlus.read_options(options)).widths
    assert (widths.own == widths.linear) == (options == {"budget_mb": 64, "blocks": 1})
    found = count_parameters("prol_plus", options, "tiny", 100, 10)
    used = found["during_last_task"]["statistics_stored"]["bytes"]
    directions = widths.linear * widths.own if widths.own < widths.linear else 0
    rest = 100 * (widths.all + 1) + 2 * widths.linear + directions
    # for 100 biases and float64 counts there is what block rows do not take of their share
    assert 0.99 * budget < used + 4 * rest <= budget
    assert found["during_last_task"]["trained_now"] == {"count": 0, "bytes": 0}
    assert found["during_first_task"]["trained_now"]["count"] == (4 * 12 + 2) * 192 + 10 * 193


@pytest.mark.parametrize("options", [{}, {"blocks": 1}], ids=["some directions", "all directions"])
def test_beyond_a_hundred_classes_class_covariances_take_no_more(options: dict[str, Any]) -> None:
    learner = PROLPlus(open_backbone("tiny", shapes_only=True), PROLPlus.read_options(options))
    assert learner.covariances is not None
    assert (learner.widths.own == learner.widths.linear) == bool(options)
    used = []
    for classes in (100, 400, 1000):
        learner.boundary(list(range(len(learner.classes), classes)))
        used.append(Amount.of(learner.covariances.table.rows).bytes)
    assert max(used) <= learner.widths.own_room
    assert min(used) > 0.95 * learner.widths.own_room


def test_a_backbone_without_blocks_is_refused(small_resnet: ResNet) -> None:
    with pytest.raises(ValueError, match="method prol_plus reads the last blocks or stages of a trained network"):
        PROLPlus(small_resnet, PROLPlus.read_options({}))
