"""What PROL+ chooses after how many samples, and that it resumes bit for bit before and after each choice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import prol
from methods.prol_plus.small_prol_plus import WHOLE, begin_early, blocks_of, covariances, make
from methods.small_streams import pictures, same_state, tensors
from prol.backbones import ViT
from prol.methods.closed_form.cross_validation import FIRST, STRENGTHS, choose_strength
from prol.methods.prol_plus import learner as prol_plus
from prol.methods.prol_plus.block_features import principal_directions
from prol.methods.prol_plus.class_covariances import packed_length
from prol.methods.prol_plus.learner import PROLPlus

TEST = pictures(list(range(6)), seed=7)
KINDS = [number % 3 if number < 40 else number % 4 for number in range(60)]


def chunk(count: int, seed: int) -> tuple[Any, list[int]]:
    kinds = [number % 3 for number in range(count)]
    return pictures(kinds, seed), kinds


@pytest.mark.parametrize("adapt_steps", [0, 400])
def test_in_earnest_128_samples_choose_the_shrinkage_and_256_fix_the_directions(tiny: ViT, adapt_steps: int) -> None:
    """And not one sample earlier."""
    learner = make(tiny, adapt_steps=adapt_steps)
    assert learner.covariances is not None
    told = []
    for number, count in enumerate([27, 100, 1, 100, 27, 1, 4]):
        learner.learn(*chunk(count, number))
        told.append((learner.seen, learner.chosen_at, learner.directions is not None))
        assert int(learner.covariances.table.rows[:, 0].sum()) == max(0, learner.seen - 256)
    begun = [(256, 256, True), (260, 256, True)]
    assert told == [(27, 0, False), (127, 0, False), *((seen, 128, False) for seen in (128, 228, 255)), *begun]


@pytest.mark.parametrize("penalty", [None, 0.1])
@pytest.mark.parametrize("adapt_steps", [0, 5, 200])
def test_directions_are_fixed_after_enough_samples_whether_or_not_the_network_moves(
    tiny: ViT, monkeypatch: pytest.MonkeyPatch, adapt_steps: int, penalty: float | None
) -> None:
    """They are the main ones of what was seen by then, as it is after that chunk's step; classes begin behind them."""
    begin_early(monkeypatch, enough=12)
    learner = make(tiny, adapt_steps=adapt_steps, adapt_lr=0.02, class_directions=6, penalty=penalty)
    assert learner.covariances is not None
    for step in range(8):
        learner.learn(pictures([0, 1, 2, 2], seed=step), [0, 1, 2, 2])
        assert (learner.directions is not None) == (step >= 2)
        if step == 2:
            expected = principal_directions(learner.moments.totals(), 2 * tiny.width, 6).float()
        if step >= 2:
            assert torch.equal(learner.directions, expected)
        since = max(0, step - 2)
        assert learner.covariances.table.rows[:, 0].tolist() == [since, since, 2 * since]
        assert learner.predict(TEST).isfinite().all()


def linear_features(learner: PROLPlus, vit: ViT, images: Any) -> Tensor:
    taps = list(range(vit.depth - learner.widths.blocks, vit.depth))
    assert learner.scale is not None
    return learner.scale.apply(blocks_of(vit, images, taps).float())


@pytest.mark.parametrize("own", [None, 128])
def test_class_covariances_in_all_directions_begin_with_the_first_sample_and_need_none_fixed(
    tiny: ViT, monkeypatch: pytest.MonkeyPatch, own: int | None
) -> None:
    """Their coordinates are the features themselves, the last first."""
    begin_early(monkeypatch, enough=4)
    learner, chunks = make(tiny, adapt_steps=0, **(WHOLE | {"class_directions": own})), []
    assert learner.covariances is not None
    for step, count in enumerate([1, 9, 30]):
        images, kinds = chunk(count, step)
        learner.learn(images, kinds)
        chunks.append((linear_features(learner, tiny, images).flip(1), kinds))
        rows = learner.covariances.table.rows
        torch.testing.assert_close(rows, covariances(128, chunks)[: len(rows)], rtol=1e-4, atol=1e-4)
        assert learner.directions is None
        assert "own/directions" not in tensors(learner)
    one = make(tiny, adapt_steps=0, **(WHOLE | {"class_directions": 127}))
    for step, count in enumerate([1, 9, 30]):
        one.learn(*chunk(count, step))
    assert one.directions is not None
    assert one.directions.shape == (128, 127)


def test_when_classes_outgrow_all_directions_the_features_of_the_last_block_stay(tiny: ViT) -> None:
    learner, chunks = make(tiny, blocks=2, adapt_steps=0, budget_mb=26, class_directions=None), []
    assert learner.covariances is not None
    assert learner.widths.own == learner.widths.linear == 256
    for step in range(4):
        if step == 2:
            learner.boundary(list(range(450)))
            assert 100 < learner.covariances.width < 128  # less than one block
        images, kinds = chunk(9, step)
        learner.learn(images, kinds)
        chunks.append((linear_features(learner, tiny, images), kinds))
    width = learner.covariances.width
    last = [(linear[:, -width:].flip(1), kinds) for linear, kinds in chunks]
    assert learner.covariances.table.rows.shape == (450, packed_length(width))
    torch.testing.assert_close(learner.covariances.table.rows[:3], covariances(width, last), rtol=1e-4, atol=1e-4)
    assert learner.predict(TEST)[:3, :3].argmax(1).tolist() == [0, 1, 2]


def learn_doubling(learner: PROLPlus) -> list[tuple[int, int]]:
    """A dozen chunks of fifteen images; samples and strength when one was chosen, which is checked throughout."""
    chosen: list[tuple[int, int]] = []
    for start in range(0, 60, 5):
        learner.learn(pictures(KINDS[start : start + 5] * 3, seed=start), KINDS[start : start + 5] * 3)
        if learner.chosen_at == learner.seen:
            chosen.append((learner.seen, choose_strength(learner.moments.totals())))
        assert (learner.chosen_at, learner.strength) == (chosen[-1] if chosen else (0, FIRST))
        assert learner.report()["shrinkage"] == learner.options.shrinkage_factor * STRENGTHS[learner.strength]
    return chosen


@pytest.mark.parametrize("asked", [False, True])
def test_the_strength_is_chosen_while_learning_whenever_samples_have_doubled(
    tiny: ViT, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    begin_early(monkeypatch, first_choice=32)
    learner = make(tiny, adapt_steps=0)
    if asked:
        learn, predict = learner.learn, learner.predict

        def learn_and_ask(images: Any, labels: Any) -> None:
            learn(images, labels)
            (before, meta), _ = learner.state(), predict(TEST)
            after, meta_after = learner.state()
            assert meta == meta_after
            assert all(torch.equal(before[name], after[name]) for name in before)

        monkeypatch.setattr(learner, "learn", learn_and_ask)
    assert [seen for seen, _ in learn_doubling(learner)] == [45, 90, 180]  # in steps of 15, from 32 on


def test_a_given_penalty_is_used_and_none_is_ever_chosen(tiny: ViT, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are bit for bit those of a learner that chose the same one."""
    begin_early(monkeypatch, enough=30, first_choice=32)
    chooser = make(tiny, adapt_steps=0, shrinkage_factor=0.3)
    assert learn_doubling(chooser)
    assert chooser.strength != FIRST
    penalty = 0.3 * STRENGTHS[chooser.strength]
    given, other = (
        make(tiny, adapt_steps=0, shrinkage_factor=0.9, penalty=number) for number in (penalty, 3 * penalty)
    )

    def never(*_: Any) -> int:
        raise AssertionError("nothing is to be chosen")

    monkeypatch.setattr(prol_plus, "choose_strength", never)
    for learner in (given, other):
        for start in range(0, 60, 5):
            learner.learn(pictures(KINDS[start : start + 5] * 3, seed=start), KINDS[start : start + 5] * 3)
        assert (learner.chosen_at, learner.strength) == (0, FIRST)
        assert learner.directions is not None
    assert torch.equal(given.predict(TEST), chooser.predict(TEST))
    assert not torch.allclose(other.predict(TEST), chooser.predict(TEST), rtol=1e-2)
    assert given.report() == {"shrinkage": penalty}
    assert other.report() == {"shrinkage": 3 * penalty}


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_early(monkeypatch)


STREAM: list[list[int] | None] = [
    *([0, 1], [1, 0, 0, 2], [2] * 30, [2, 0, 1, 1]),
    None,
    *([3, 4], [3, 4, 0], [4, 4, 3]),
    None,
    *([5, 1], [5]),
]
"""Kinds of images of each chunk; None is a boundary, which announces nothing. Twelve samples fix the directions."""


def feed(learner: PROLPlus, chunks: list[list[int] | None], first: int = 0) -> None:
    for number, chunk in enumerate(chunks, start=first):
        if chunk is None:
            learner.boundary()
        else:
            learner.learn(pictures(chunk, number), chunk)


CUTS = [0, 1, 2, 3, 4, 5, 6, 10]
OTHERS: list[dict[str, Any]] = [
    {"adapt_steps": 2},
    {"adapt_steps": 0, "class_directions": 0},
    WHOLE | {"adapt_steps": 0},
    {"drift_correction": False},
    {"penalty": 0.05},
]


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize(
    ("options", "cut"),
    [
        *(({}, cut) for cut in (2, 3, 5)),
        *((options, 3) for options in (WHOLE, *OTHERS)),
        *(pytest.param({}, cut, marks=pytest.mark.slow) for cut in (0, 1, 4, 6, 10)),
        *(pytest.param(WHOLE, cut, marks=pytest.mark.slow) for cut in CUTS if cut != 3),
        *(pytest.param(options, cut, marks=pytest.mark.slow) for options in OTHERS for cut in (1, 6)),
    ],
    ids=str,
)
def test_learning_resumes_bit_for_bit(tiny: ViT, options: dict[str, Any], cut: int, tmp_path: Path) -> None:
    learner = make(tiny, adapt_lr=0.02, **options)
    feed(learner, STREAM[:cut])
    learner.save(tmp_path / "saved")
    loaded = prol.load(tmp_path / "saved", tiny)
    retold, state = make(tiny, seed=77, adapt_lr=0.02, **options), learner.state()
    retold.load_state(state[0], json.loads(json.dumps(state[1])))
    assert isinstance(loaded, PROLPlus)
    for twin in (loaded, retold):
        assert same_state(learner, twin)
        assert twin.tuning.over == learner.tuning.over
        assert twin.report() == learner.report()
        feed(twin, STREAM[cut:], first=cut)
    feed(learner, STREAM[cut:], first=cut)
    for twin in (loaded, retold):
        assert same_state(learner, twin)
        assert torch.equal(learner.predict(TEST), twin.predict(TEST))
    assert (learner.chosen_at > 0) == ("penalty" not in options)


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize(
    ("options", "tuning", "fixed"),
    [
        ({}, [0, 1, 2, 3, 4], [3, 4, 5, 6, 10]),
        ({"adapt_steps": 2}, [0, 1], [3, 4, 5, 6, 10]),
        (WHOLE, [0, 1, 2, 3, 4], []),
    ],
    ids=str,
)
def test_it_is_cut_in_each_of_its_phases(
    tiny: ViT, options: dict[str, Any], tuning: list[int], fixed: list[int]
) -> None:
    """While it tunes and carries along, before and after its directions are fixed, and when all is settled."""
    learners = {cut: make(tiny, **options) for cut in CUTS}
    for cut, learner in learners.items():
        feed(learner, STREAM[:cut])
    assert [cut for cut, learner in learners.items() if not learner.tuning.over] == tuning
    assert [cut for cut, learner in learners.items() if "own/directions" in tensors(learner)] == fixed
    assert all(learner.options.drift_correction for learner in learners.values())
    held = [cut for cut, learner in learners.items() if bool(tensors(learner)["own/products"].any())]
    assert held == (CUTS[1:] if options == WHOLE else [4, 5, 6, 10])


@pytest.mark.usefixtures("early")
@pytest.mark.parametrize("options", [{"class_directions": 20}, WHOLE | {"class_directions": 128}], ids=str)
def test_a_learner_with_fewer_directions_than_it_began_with_can_be_taken_up(tiny: ViT, options: dict[str, Any]) -> None:
    learner = make(tiny, adapt_steps=2, **options)
    learner.boundary(list(range(500)))
    feed(learner, STREAM[:3])
    feed(learner, STREAM[2:6])
    assert (learner.directions is None) == (options["class_directions"] == 128)
    twin = learner.clone()
    for one in (learner, twin):
        one.boundary(list(range(500, 900)))
        feed(one, STREAM[5:], first=5)
    assert learner.covariances is not None
    assert learner.covariances.width < options["class_directions"]
    assert same_state(learner, twin)
    assert torch.equal(learner.predict(TEST), twin.predict(TEST))
