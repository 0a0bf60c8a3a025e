"""GSA: a balanced batch whose classes are weighted by how they were pulled and pushed, and the current task alone."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.replay.learner import (
    Drawn,
    Losses,
    Payload,
    ReplayLearner,
    ReplayOptions,
    current_cross_entropy,
    summed,
)
from prol.methods.replay.views import LARGE_CROP_GREY, apply_views, draw_views, with_halves_mirrored
from prol.options import ChunkSize
from prol.state import State

BALANCE = 2.0
"""Weight of the balanced batch's term."""
UNWEIGHTED = 5
"""Steps at the beginning of a task in which every class has weight 1."""
COUNT, OWN, OTHERS = 0, 1, 2
"""Columns of what is summed for a class: its samples, its probability on them, and on samples of other classes."""


@dataclass(frozen=True)
class GSAOptions(ReplayOptions):
    """Options of GSA; `replay` is the size of the balanced batch."""

    current: ChunkSize = 22
    """Images of the memory beside the chunk where the current task's classes compete among themselves."""


class GSA(ReplayLearner):
    """Old and new classes in proportion to their numbers, weighted; and the current task's among themselves.

    The new part of the balanced batch is drawn from the chunk and from current classes of the memory, where a kind has
    too few its members come again.
    """

    name: ClassVar[str] = "gsa"
    citation: ClassVar[str] = (
        "Guo et al., Dealing with Cross-Task Class Discrimination in Online Continual Learning, CVPR 2023"
    )
    uses_tasks: ClassVar[bool] = True
    Options: ClassVar[type] = GSAOptions
    options: GSAOptions

    def build(self, state: State) -> None:
        super().build(state)
        self.sums = state.table("sums", 3, dtype=torch.float64, kind="statistic")
        state.trace(
            removed="sums of the other classes' probabilities were taken on its images too",
            merged="sums of its probabilities are those of both, each pushed down by the other",
        )

    def layout(self) -> tuple[Hashable, ...]:
        return (*super().layout(), self.clock.first_row)

    # A sample of the chunk is named like a slot behind the memory's last one.

    def draw(self, rows: Tensor) -> Drawn:
        o, first = self.options, self.clock.first_row
        there = self.memory.places.rows[: len(self.memory)]
        chunk = self.memory.capacity + 1 + torch.arange(len(rows))
        old_count = o.replay - new_share(o.replay, len(rows), len(self.classes) - first, len(self.classes))
        old = self.memory.draw(old_count, self.random, (there < first).nonzero().flatten())
        new_count = o.replay - (old_count if len(old) else 0)
        current = self.memory.draw(
            max(o.current, new_count - len(rows)), self.random, (there >= first).nonzero().flatten()
        )
        pool = torch.cat([chunk, current])
        new = pool[torch.randperm(len(pool), generator=self.random)]
        own = chunk[rows >= first]
        beside = current if len(current) else own if len(own) else chunk
        drawn: Drawn = {"weighted": torch.tensor(self.clock.steps >= UNWEIGHTED)}
        balanced = torch.cat([again(old, o.replay - new_count), again(new, new_count)])
        for name, places in (("balanced", balanced), ("current", torch.cat([chunk, again(beside, o.current)]))):
            known = torch.cat([self.memory.places.rows, rows.new_zeros(1), rows])
            views = draw_views(LARGE_CROP_GREY, len(places), self.size, self.random)
            drawn |= {f"{name}_places": places, f"{name}_rows": known[places], f"{name}_views": views}
        return drawn

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:  # noqa: ARG002
        values, first = {}, self.clock.first_row
        if first < len(self.classes):
            logits, members = self._seen("current", images, drawn)
            values["current"] = current_cross_entropy(logits, members, first)
        logits, members = self._seen("balanced", images, drawn)
        before = self.sums.rows
        sums = before + probability_sums(logits, members)
        weights = torch.where(drawn["weighted"], class_weights(sums), 1)
        values["balanced"] = BALANCE * weighted_cross_entropy(logits, members, weights)
        values = summed(values)
        before.copy_(torch.where(values["total"].detach().isfinite(), sums, before))
        return values, {}

    def _seen(self, which: str, images: Tensor, drawn: Drawn) -> tuple[Tensor, Tensor]:
        """Logits `[2 n, C]` of views of what was drawn and of those with mirrored halves, and their class rows."""
        places, rows = drawn[f"{which}_places"], drawn[f"{which}_rows"]
        behind = self.memory.capacity + 1
        stored, new = self.recalled(places.clamp(max=behind - 1)), images[(places - behind).clamp(min=0)]
        chosen = torch.where((places >= behind).view(-1, 1, 1, 1), new, stored)
        views = apply_views(LARGE_CROP_GREY, chosen, drawn[f"{which}_views"])
        return self.logits(self.features(with_halves_mirrored(views))), rows.repeat(2)


def new_share(replay: int, chunk: int, new: int, seen: int) -> int:
    """How many of `replay` samples are new ones, by the share of new classes among those seen: at least one.

    Where a task has brought no class yet, the chunk counts as the new ones.
    """
    if not new:
        return min(chunk, replay)
    return max(1, round(replay * new / seen))


def again(slots: Tensor, count: int) -> Tensor:
    """The first `count` of `[n]`, from the beginning again where there are too few."""
    return slots[torch.arange(count) % max(1, len(slots))]


def probability_sums(logits: Tensor, rows: Tensor) -> Tensor:
    """`[C, 3]` of a batch of logits `[B, C]` and class rows `[B]`, in float64: long sums of small numbers."""
    p = logits.detach().double().softmax(1)
    own = rows.unsqueeze(1) == torch.arange(logits.shape[1], device=rows.device)
    return torch.stack([own.double().sum(0), torch.where(own, p, 0).sum(0), torch.where(~own, p, 0).sum(0)], 1)


def class_weights(sums: Tensor) -> Tensor:
    """2 / (1 + exp(1 - a)) `[C]` from sums `[C, 3]`, a being the mass of gradient upwards over that downwards.

    A class that no sample has pushed down yet has a = 1 and so weight 1.
    """
    pushed = sums[:, OTHERS] > 0
    ratio = (sums[:, COUNT] - sums[:, OWN]) / torch.where(pushed, sums[:, OTHERS], 1)
    return 2 * torch.sigmoid(torch.where(pushed, ratio, 1) - 1)


def weighted_cross_entropy(logits: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """The mean over `[B, C]` of each sample's cross entropy times the weight `[C]` of its class."""
    return (weights[rows].to(logits) * F.cross_entropy(logits, rows, reduction="none")).mean()
