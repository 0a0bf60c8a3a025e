"""OCM: features that tell everything apart, held where the network of the last task had them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import Backbone
from prol.class_rows import Contents
from prol.learner import Amount, Footprint, State
from prol.methods.replay.contrast import class_contrast, same_class
from prol.methods.replay.contrastive import ContrastLearner, ContrastOptions, Seen
from prol.methods.replay.learner import Drawn
from prol.methods.replay.old_network import OldNetwork
from prol.methods.replay.views import CROP_GREY, apply_views


@dataclass(frozen=True)
class OCMOptions(ContrastOptions):
    """Dials of OCM."""

    lr: float = 1e-3
    later_scale: float = 0.5
    """What the likeness of two images is multiplied with after the first task."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.later_scale < float("inf"):
            raise ValueError(f"later_scale must be a finite number above 0, got {self.later_scale}")


class OCM(ContrastLearner):
    """In the first task the chunk alone, then the memory too, which the network of the task before has a say on."""

    name: ClassVar[str] = "ocm"
    citation: ClassVar[str] = "Guo et al., Online Continual Learning through Mutual Information Maximization, ICML 2022"
    Options: ClassVar[type] = OCMOptions
    beta2: ClassVar[float] = 0.99
    options: OCMOptions

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.old = OldNetwork(self.network, self.extras["projector"])

    def _start_task(self) -> None:
        if self.clock.steps:  # a task in which nothing was learnt leaves nothing to hold on to
            self.old.take_over(self.network, self.extras["projector"], self.heads[0])
        super()._start_task()

    def _draw(self, rows: Tensor) -> Drawn:
        turned = self.options.rotations
        drawn = {"columns": self._draw_columns(), "turned": self._draw_views(turned * len(rows))}
        if not self.old.classes or not len(self.memory):
            return drawn | {"views": self._draw_views(len(rows))}
        memory = self._draw_memory(self._memory_share(rows))
        count = len(memory["slots"])
        return drawn | memory | {"memory_turned": self._draw_views(turned * count), "views": self._draw_views(count)}

    def _losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        seen = self._seen_turned(images, rows, drawn["turned"], drawn["columns"])
        if "slots" in drawn:
            values = {"new": self._new_contrast(seen, self.options.later_scale)} | self._memory_losses(drawn)
        else:
            values = {"new": self._new_contrast(seen, 1.0)}
            values["labels"] = F.cross_entropy(self._viewed_logits(images, drawn), rows)
        return values | {"total": torch.stack(list(values.values())).sum()}, {}

    def _memory_losses(self, drawn: Drawn) -> dict[str, Tensor]:
        recalled, rows = self._recalled(drawn["slots"]), drawn["memory_rows"]
        seen = self._seen_turned(recalled, rows, drawn["memory_turned"], drawn["columns"])
        views = apply_views(CROP_GREY, recalled, drawn["views"])
        logits = self._logits(self._features(views))
        # Each image for itself, with norms that do not look at the batch: one pass for both.
        projections, old_logits = self.old.says(torch.cat([seen.plain, views]))
        return {
            "all": self._all_contrast(seen, self.options.later_scale),
            "kept": self._kept_contrast(seen, projections[: len(seen.plain)]),
            "logits": F.mse_loss(logits[:, : self.old.classes], old_logits[len(seen.plain) :]),
            "labels": F.cross_entropy(logits, rows),
        }

    def _kept_contrast(self, seen: Seen, old: Tensor) -> Tensor:
        """Of plain images as they are projected now, with the same as the old network projects them, `[R * N, d]`."""
        similarity = seen.projections[: len(old)] @ old.T
        return class_contrast(similarity, same_class(seen.pseudo), self.options.temperature)

    # What it keeps.

    def footprint(self) -> Footprint:
        plain = super().footprint()
        return replace(
            plain,
            parameters_stored=_sum(plain.parameters_stored, Amount.of(*self.old.parameters().values())),
            statistics_stored=_sum(plain.statistics_stored, Amount.of(*self.old.running().values())),
        )

    def contents(self, row: int | None = None) -> Contents:
        plain = super().contents(row)
        asked = "the network of the task before, which is kept, may have been trained with it"
        kept_row = "the network of the task before keeps the row of the class that stays, if it had one"
        return replace(
            plain,
            tables={**plain.tables, "old_head/weight": "keep", "old_head/bias": "keep"},
            statistics=(*plain.statistics, "old_running/*"),
            traces=(*plain.traces, asked),
            merged=(*plain.merged, kept_row),
        )

    def _state(self) -> State:
        tensors, meta = super()._state()
        return tensors | self.old.parameters() | self.old.running(), meta

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        super()._load_state(tensors, meta)
        self.old.load(tensors)


def _sum(one: Amount, other: Amount) -> Amount:
    return Amount(one.count + other.count, one.bytes + other.bytes)
