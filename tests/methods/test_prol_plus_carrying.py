"""While PROL+ tunes its network, what it has seen moves along: against samples that are kept and moved one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_prol_plus import CLASSES, TASKS, WHOLE, begin_early, blocks_of, make
from small_streams import pictures
from torch import Tensor

from prol.backbones import ViT
from prol.methods.closed_form.moments import Totals
from prol.methods.prol_plus.class_covariances import OwnCovariances
from prol.methods.prol_plus.learner import PROLPlus


@pytest.fixture(autouse=True)
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    begin_early(monkeypatch)


class Kept:
    """All samples' features, which a learner must not keep; each step moves them by the mean move of its own chunk."""

    def __init__(self, vit: ViT, **options: Any) -> None:
        self.learner = make(vit, adapt_lr=0.05, **options)
        self.last = [vit.depth - 1]
        self.x = torch.zeros(0, self.learner.widths.all, dtype=torch.float64)
        self.rows: list[int] = []
        self.moved: list[float] = []
        self.own: list[tuple[Tensor, list[int]]] = []
        """Coordinates of the samples that own covariances hold, as the network saw them when they came."""

    def seen_now(self, images: Any) -> Tensor:
        """Features of blocks, as the network now gives them."""
        return blocks_of(self.learner.tuning.network, images, self.last)

    def embedded(self, blocks: Tensor) -> Tensor:
        """They at one scale, with the random features."""
        learner = self.learner
        assert learner.scale is not None
        linear = (blocks - learner.scale.mean.double()) * learner.scale.inverse.double()
        angles = learner.options.frequency * (linear @ learner.weight.double()) + learner.phase.double()
        return torch.cat([linear, angles.cos()], dim=1)

    def learn(self, classes: list[int], seed: int) -> None:
        images, learner = pictures(classes, seed=seed), self.learner
        blocks, directions, linear = self.seen_now(images), learner.directions, learner.widths.linear
        learner.learn(images, classes)
        before, after = (self.embedded(found) for found in (blocks, self.seen_now(images)))
        move = (after - before).mean(0)
        self.x, self.rows = torch.cat([self.x, before]), [*self.rows, *classes]
        self.moved.append(float(move.abs().max()))
        if learner.options.carry:
            self.x += move
        if learner.widths.own == linear:
            self.own.append((before[:, :linear].flip(1), classes))
        elif directions is not None:
            self.own.append((before[:, :linear] @ directions.double(), classes))

    def expected(self) -> Totals:
        return Totals.of(self.x, torch.tensor(self.rows), len(self.learner.classes))

    def expected_products(self) -> Tensor:
        own = OwnCovariances(self.learner.widths.own, 10**9, torch.device("cpu"), torch.float64)
        own.add_classes(len(self.learner.classes))
        for coordinates, rows in self.own:
            own.add(coordinates, torch.tensor(rows))
        return own.table.rows.float()


def close(learner: PROLPlus, expected: Totals) -> None:
    found = learner.moments.totals()
    assert torch.equal(found.counts, expected.counts)
    torch.testing.assert_close(found.sums, expected.sums, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.gram, expected.gram, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("options", [{}, {"features": 0}, {"own": 0}, WHOLE], ids=str)
def test_all_that_was_seen_moves_as_the_chunk_does_and_stands_once_tuning_is_over(
    tiny: ViT, options: dict[str, Any], carry: bool
) -> None:
    """The chunk itself too: it is taken in as it was before its step. Own covariances do not move."""
    kept = Kept(tiny, adapt_steps=5, carry=carry, **options)
    learner = kept.learner
    for step in range(8):
        kept.learn(CLASSES if step != 3 else [0, 0, 1, 3], seed=step)
        close(learner, kept.expected())
        assert learner.tuning.over == (step >= 4)
    assert kept.moved[0] < 1e-12  # a head of zeros tells the LayerNorms nothing
    assert min(kept.moved[1:5]) > 0.05
    assert max(kept.moved[5:]) == 0
    if learner.own is not None:
        assert bool(learner.own.table.rows.any())
        torch.testing.assert_close(learner.own.table.rows, kept.expected_products(), rtol=1e-4, atol=1e-3)


def test_carrying_along_makes_much_of_a_difference(tiny: ViT) -> None:
    """Means of classes are then where the network now sees them, and not where it once did."""
    off = []
    for carry in (True, False):
        kept = Kept(tiny, adapt_steps=6, carry=carry)
        for step in range(6):
            kept.learn(CLASSES, seed=step)
        totals = kept.learner.moments.totals()
        now = torch.cat([kept.embedded(kept.seen_now(pictures(CLASSES, seed=step))) for step in range(6)])
        off.append(float((totals.sums.sum(0) / totals.counts.sum() - now.mean(0)).norm()))
    assert off[0] < 0.2 * off[1]


def test_with_the_second_task_nothing_moves_any_more(tiny: ViT) -> None:
    kept = Kept(tiny)
    for number, classes in enumerate(TASKS):
        kept.learner.boundary(classes)
        for step in range(3):
            kept.learn(classes * 2, seed=3 * number + step)
        close(kept.learner, kept.expected())
    assert min(kept.moved[1:3]) > 0.05
    assert max(kept.moved[3:]) == 0


def test_one_image_at_a_time_carries_all_the_others_along(tiny: ViT) -> None:
    kept = Kept(tiny, adapt_steps=8)
    for step in range(10):
        kept.learn([step % 3], seed=step)
        close(kept.learner, kept.expected())
    assert max(kept.moved[:8]) > 0.05
