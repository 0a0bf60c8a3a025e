"""Tuning of the normalisation layers at the beginning of a stream: steps, and when one is made."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prol.backbones.base import Tapped
from prol.methods.closed_form.first_task import FirstTask
from prol.methods.closed_form.moments import require_usable, usable
from prol.methods.prol_plus.evidence import Evidence
from prol.state import State

WARM_UP = 0.25
"""Share of the steps of tuning over which the rate rises: a stream of a few chunks hardly moves the network."""
SURPRISE = 4.0
"""Images of a class that were due since its last one, from which on the class counts as gone."""


class FirstBlocks(FirstTask):
    """Tunes on the pooled feature, and reads the last blocks or stages in the same pass."""

    network: Tapped

    def __init__(self, state: State, backbone: Tapped, lr: float, blocks: int, pooled: bool) -> None:
        super().__init__(state, backbone, lr)
        self.frozen, self.blocks, self.pooled = backbone, blocks, pooled
        self.last = state.table("last", dtype=torch.int64, kind="statistic", combine="keep", grows=self._is_tuning)
        width = backbone.width if pooled else backbone.tap_widths[-1]
        self.evidence = Evidence(state.scope("evidence"), width, self._is_tuning)

    def end(self) -> None:
        super().end()
        self.last.truncate(0)
        self.evidence.end()

    def look(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        feature, taps = self.network.tapped(inputs, self.blocks)
        return feature, torch.cat([taps, feature], dim=1) if self.pooled else taps

    def frozen_feature(self, inputs: Tensor) -> Tensor:
        """The frozen network's own feature `[B, P]`, or where it is not read what is read last."""
        return (self.frozen.features(inputs) if self.pooled else self.frozen.tapped(inputs, 1)[1]).float()

    def seen(self, inputs: Tensor) -> Tensor:
        """Features of blocks `[B, L]` alone."""
        return self.look(inputs)[1].float()

    def step_and_look(self, inputs: Tensor, rows: Tensor, steps: int, rate: float) -> tuple[Tensor, Tensor, float]:
        """One step: features of blocks before and after it `[B, L]`, and the loss. If it ruins them, it is undone."""
        undo = self._state.snapshot()
        before, loss = self.step(inputs, rows, steps, rate)
        before, after = before.float(), self.seen(inputs)
        if not (usable(before) and usable(after)):
            self._state.restore(undo)
            require_usable(before)
            raise ValueError(
                f"step {steps + 1} of tuning, at the rate {rate:g}, ruins the network's features: "
                "it is undone and the chunk not learnt; lower adapt_lr="
            )
        return before, after, loss


def gone(counts: Tensor, last: Tensor, seen: int) -> Tensor:
    """Which classes come no more, bool `[C]`: the stream would hardly be without them for so long by chance.

    `counts` `[C]` are the images of each class and `seen` those of all; `last` `[C]` is what `seen` was at the class's
    last one. If it still came as often, the chance of such a gap would be below exp(-`SURPRISE`). A class that came
    once may be a rare one.

    >>> gone(torch.tensor([5.0, 5.0, 1.0]), torch.tensor([90, 40, 10]), 100)
    tensor([False,  True, False])
    """
    return (counts - 1) * (seen - last) > SURPRISE * last


def one_cycle(progress: float) -> float:
    """The share of the largest rate at a share of all steps: up by a line, then down to zero by a cosine.

    >>> [round(one_cycle(progress), 2) for progress in (0.0, 0.125, 0.25, 0.625, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if progress < WARM_UP:
        return progress / WARM_UP
    return (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))) / 2
