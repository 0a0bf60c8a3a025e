"""GSA: a balanced batch whose classes are weighted by how they were pulled and pushed, and the current task alone."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import Backbone
from prol.class_rows import Contents
from prol.engine.losses import mean_over
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.replay.gradient_balance import class_weights, probability_sums, weighted_cross_entropy
from prol.methods.replay.learner import Drawn, ReplayLearner, ReplayOptions
from prol.methods.replay.mirrored_halves import with_halves_mirrored
from prol.methods.replay.views import LARGE_CROP_GREY, apply_views, draw_views
from prol.parts.rows import RowTable

BALANCE = 2.0
"""Weight of the balanced batch's term."""
UNWEIGHTED = 5
"""Steps at the beginning of a task in which every class weighs 1."""


@dataclass(frozen=True)
class GSAOptions(ReplayOptions):
    """Dials of GSA; `replay` is the size of the balanced batch."""

    current: int = 22
    """Images of the memory beside the chunk where the current task's classes compete among themselves."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.current < 1:
            raise ValueError(f"current must be at least 1, got {self.current}")


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

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.sums = RowTable((3,), self.backbone.device, torch.float64)

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.sums.append(torch.zeros(len(names), 3))

    def _layout(self) -> tuple[Hashable, ...]:
        return (*super()._layout(), self.clock.first_row)

    # A sample of the chunk is named like a slot behind the memory's last one.

    def _draw(self, rows: Tensor) -> Drawn:
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

    def _losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:  # noqa: ARG002
        values, first = {}, self.clock.first_row
        if first < len(self.classes):
            logits, members = self._seen("current", images, drawn)
            values["current"] = own_cross_entropy(logits, members, first)
        logits, members = self._seen("balanced", images, drawn)
        before = self.sums.rows
        sums = before + probability_sums(logits, members)
        weights = torch.where(drawn["weighted"], class_weights(sums), 1)
        values["balanced"] = BALANCE * weighted_cross_entropy(logits, members, weights)
        total = torch.stack(list(values.values())).sum()
        before.copy_(torch.where(total.detach().isfinite(), sums, before))
        return values | {"total": total}, {}

    def _seen(self, which: str, images: Tensor, drawn: Drawn) -> tuple[Tensor, Tensor]:
        """Logits `[2 n, C]` of views of what was drawn and of those with mirrored halves, and their class rows."""
        places, rows = drawn[f"{which}_places"], drawn[f"{which}_rows"]
        behind = self.memory.capacity + 1
        kept, new = self._recalled(places.clamp(max=behind - 1)), images[(places - behind).clamp(min=0)]
        chosen = torch.where((places >= behind).view(-1, 1, 1, 1), new, kept)
        views = apply_views(LARGE_CROP_GREY, chosen, drawn[f"{which}_views"])
        return self._logits(self._features(with_halves_mirrored(views))), rows.repeat(2)

    # What it keeps.

    def footprint(self) -> Footprint:
        plain = super().footprint()
        sums, known = Amount.of(self.sums.rows), plain.statistics_stored
        return replace(plain, statistics_stored=Amount(known.count + sums.count, known.bytes + sums.bytes))

    def contents(self, row: int | None = None) -> Contents:
        plain = super().contents(row)
        return replace(
            plain,
            tables={**plain.tables, "sums": "sum"},
            statistics=(*plain.statistics, "sums"),
            traces=(*plain.traces, "sums of the other classes' probabilities were taken on its images too"),
            merged=(*plain.merged, "sums of its probabilities are those of both, each pushed down by the other"),
        )

    def _state(self) -> State:
        tensors, meta = super()._state()
        return tensors | {"sums": self.sums.rows}, meta

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        super()._load_state(tensors, meta)
        self.sums.replace(tensors["sums"])


def new_share(replay: int, chunk: int, new: int, seen: int) -> int:
    """How many of `replay` samples are new ones, by the share of new classes among those seen: at least one.

    Where a task has brought no class yet, the chunk stands for the new ones.
    """
    if not new:
        return min(chunk, replay)
    return max(1, round(replay * new / seen))


def again(slots: Tensor, count: int) -> Tensor:
    """The first `count` of `[n]`, from the beginning again where there are too few."""
    return slots[torch.arange(count) % max(1, len(slots))]


def own_cross_entropy(logits: Tensor, rows: Tensor, first: int) -> Tensor:
    """Cross entropy of `[B, C]` over classes from row `first` on, a mean over their own samples; others add nothing."""
    losses = F.cross_entropy(logits[:, first:], (rows - first).clamp(min=0), reduction="none")
    return mean_over(losses, rows >= first)
