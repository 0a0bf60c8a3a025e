"""What PROL+ fixes or chooses, and after how many samples: the shrinkage, and the directions of own covariances."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_prol_plus import WHOLE, begin_early, blocks_of, make
from small_streams import pictures, tensors
from torch import Tensor

from prol.backbones import ViT
from prol.methods.prol_plus.block_features import principal_directions
from prol.methods.prol_plus.class_covariances import OwnCovariances, packed_length
from prol.methods.prol_plus.cross_validation import FIRST, STRENGTHS, choose_strength
from prol.methods.prol_plus.learner import PROLPlus
from prol.methods.prol_plus.learner import learner as prol_plus

TEST = pictures(list(range(6)), seed=7)
KINDS = [number % 3 if number < 40 else number % 4 for number in range(60)]


def chunk(count: int, seed: int) -> tuple[Any, list[int]]:
    kinds = [number % 3 for number in range(count)]
    return pictures(kinds, seed), kinds


@pytest.mark.parametrize("adapt_steps", [0, 400])
def test_in_earnest_128_samples_choose_the_shrinkage_and_256_fix_the_directions(tiny: ViT, adapt_steps: int) -> None:
    """And not one sample earlier."""
    learner = make(tiny, adapt_steps=adapt_steps)
    assert learner.own is not None
    told = []
    for number, count in enumerate([27, 100, 1, 100, 27, 1, 4]):
        learner.learn(*chunk(count, number))
        told.append((learner.seen, learner.chosen_at, learner.directions is not None))
        assert int(learner.own.table.rows[:, 0].sum()) == max(0, learner.seen - 256)
    begun = [(256, 256, True), (260, 256, True)]
    assert told == [(27, 0, False), (127, 0, False), *((seen, 128, False) for seen in (128, 228, 255)), *begun]


@pytest.mark.parametrize("penalty", [None, 0.1])
@pytest.mark.parametrize("adapt_steps", [0, 5, 200])
def test_directions_are_fixed_after_enough_samples_whether_or_not_the_network_moves(
    tiny: ViT, monkeypatch: pytest.MonkeyPatch, adapt_steps: int, penalty: float | None
) -> None:
    """They are the main ones of what was seen by then, as it is after that chunk's step; classes begin behind them."""
    begin_early(monkeypatch, enough=12)
    learner = make(tiny, adapt_steps=adapt_steps, adapt_lr=0.02, own=6, penalty=penalty)
    assert learner.own is not None
    for step in range(8):
        learner.learn(pictures([0, 1, 2, 2], seed=step), [0, 1, 2, 2])
        assert (learner.directions is not None) == (step >= 2)
        if step == 2:
            expected = principal_directions(learner.moments.totals(), 2 * tiny.width, 6).float()
        if step >= 2:
            assert torch.equal(learner.directions, expected)
        since = max(0, step - 2)
        assert learner.own.table.rows[:, 0].tolist() == [since, since, 2 * since]
        assert learner.predict(TEST).isfinite().all()


def linear_features(learner: PROLPlus, vit: ViT, images: Any) -> Tensor:
    taps = list(range(vit.depth - learner.widths.blocks, vit.depth))
    assert learner.scale is not None
    return learner.scale.apply(blocks_of(vit, images, taps).float())


def own_rows(width: int, chunks: list[tuple[Tensor, list[int]]]) -> Tensor:
    """Packed products of the given coordinates, for three classes."""
    own = OwnCovariances(width, 10**9, torch.device("cpu"), torch.float32)
    own.add_classes(3)
    for coordinates, rows in chunks:
        own.add(coordinates, torch.tensor(rows))
    return own.table.rows


@pytest.mark.parametrize("own", [None, 128])
def test_own_covariances_in_all_directions_begin_with_the_first_sample_and_need_none_fixed(
    tiny: ViT, monkeypatch: pytest.MonkeyPatch, own: int | None
) -> None:
    """Their coordinates are the features themselves, the last first."""
    begin_early(monkeypatch, enough=4)
    learner, chunks = make(tiny, adapt_steps=0, **(WHOLE | {"own": own})), []
    assert learner.own is not None
    for step, count in enumerate([1, 9, 30]):
        images, kinds = chunk(count, step)
        learner.learn(images, kinds)
        chunks.append((linear_features(learner, tiny, images).flip(1), kinds))
        rows = learner.own.table.rows
        torch.testing.assert_close(rows, own_rows(128, chunks)[: len(rows)], rtol=1e-4, atol=1e-4)
        assert learner.directions is None
        assert "own/directions" not in tensors(learner)
    one = make(tiny, adapt_steps=0, **(WHOLE | {"own": 127}))
    for step, count in enumerate([1, 9, 30]):
        one.learn(*chunk(count, step))
    assert one.directions is not None
    assert one.directions.shape == (128, 127)


def test_when_classes_outgrow_all_directions_the_features_of_the_last_block_stay(tiny: ViT) -> None:
    learner, chunks = make(tiny, blocks=2, adapt_steps=0, budget_mb=26, own=None), []
    assert learner.own is not None
    assert learner.widths.own == learner.widths.linear == 256
    for step in range(4):
        if step == 2:
            learner.boundary(list(range(450)))
            assert 100 < learner.own.width < 128  # less than one block
        images, kinds = chunk(9, step)
        learner.learn(images, kinds)
        chunks.append((linear_features(learner, tiny, images), kinds))
    width = learner.own.width
    last = [(linear[:, -width:].flip(1), kinds) for linear, kinds in chunks]
    assert learner.own.table.rows.shape == (450, packed_length(width))
    torch.testing.assert_close(learner.own.table.rows[:3], own_rows(width, last), rtol=1e-4, atol=1e-4)
    assert learner.predict(TEST)[:3, :3].argmax(1).tolist() == [0, 1, 2]


def learn_doubling(learner: PROLPlus) -> list[tuple[int, int]]:
    """A dozen chunks of fifteen images; samples and strength when one was chosen, which is checked throughout."""
    chosen: list[tuple[int, int]] = []
    for start in range(0, 60, 5):
        learner.learn(pictures(KINDS[start : start + 5] * 3, seed=start), KINDS[start : start + 5] * 3)
        if learner.chosen_at == learner.seen:
            chosen.append((learner.seen, choose_strength(learner.moments.totals())))
        assert (learner.chosen_at, learner.strength) == (chosen[-1] if chosen else (0, FIRST))
        assert learner.report()["shrinkage"] == learner.options.ease * STRENGTHS[learner.strength]
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
    """Scores are to the bit those of a learner that chose the same one."""
    begin_early(monkeypatch, enough=30, first_choice=32)
    chooser = make(tiny, adapt_steps=0, ease=0.3)
    assert learn_doubling(chooser)
    assert chooser.strength != FIRST
    penalty = 0.3 * STRENGTHS[chooser.strength]
    given, other = (make(tiny, adapt_steps=0, ease=0.9, penalty=number) for number in (penalty, 3 * penalty))

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
