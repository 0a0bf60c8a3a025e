"""Dark experience replay: what the network said of a sample when it was kept is to be said again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.class_rows import Contents, Tensors
from prol.labels import Label
from prol.learner import State
from prol.methods.replay import Drawn, ReplayLearner, ReplayOptions
from prol.parts.views import PARTIAL, apply_views, draw_views

UNKNOWN = torch.nan
"""The logit of a class that was not met yet when a sample was kept."""


@dataclass(frozen=True)
class DERPPOptions(ReplayOptions):
    """Dials of DER++."""

    alpha: float = 0.2
    """Weight of the distance to kept logits."""
    beta: float = 1.0
    """Weight of the memory's cross entropy."""


class DERPP(ReplayLearner):
    """Chunk, kept logits and kept labels in three passes, the memory with two draws of its own."""

    name: ClassVar[str] = "derpp"
    citation: ClassVar[str] = "Buzzega et al., Dark Experience for General Continual Learning, NeurIPS 2020"
    Options: ClassVar[type] = DERPPOptions
    options: DERPPOptions

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self._widen(len(self.classes))

    def _widen(self, classes: int) -> None:
        """Room for logits of so many classes."""
        before = self.memory.payload.get("logits")
        if before is not None and before.shape[1] >= classes:
            return
        room = 1
        while room < classes:  # by doubling, so that it depends on the number of classes alone
            room *= 2
        self.memory.add_payload("logits", (room,), self.backbone.dtype, UNKNOWN)
        if before is not None:
            self.memory.payload["logits"][:, : before.shape[1]] = before

    def _draw(self, rows: Tensor) -> Drawn:
        drawn: Drawn = {"views": draw_views(PARTIAL, len(rows), self.size, self.random)}
        for which in ("logit", "label"):
            memory = self._draw_memory()
            views = draw_views(PARTIAL, len(memory["slots"]), self.size, self.random)
            drawn |= {f"{which}_slots": memory["slots"], f"{which}_rows": memory["memory_rows"]}
            drawn[f"{which}_views"] = views
        return drawn

    def _losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        o = self.options
        logits = self._logits(self._features(apply_views(PARTIAL, images, drawn["views"])))
        values = {"chunk": F.cross_entropy(logits, rows)}
        if len(drawn["logit_slots"]):
            kept = self.memory.payload["logits"][drawn["logit_slots"]][:, : logits.shape[1]]
            values["logits"] = o.alpha * logit_distance(self._seen_again("logit", drawn), kept)
            values["labels"] = o.beta * F.cross_entropy(self._seen_again("label", drawn), drawn["label_rows"])
        room = self.memory.payload["logits"].shape[1]
        payload = F.pad(logits.detach(), (0, room - logits.shape[1]), value=UNKNOWN)
        return values | {"total": torch.stack(list(values.values())).sum()}, {"logits": payload}

    def _seen_again(self, which: str, drawn: Mapping[str, Tensor]) -> Tensor:
        recalled = self._recalled(drawn[f"{which}_slots"])
        return self._logits(self._features(apply_views(PARTIAL, recalled, drawn[f"{which}_views"])))

    def contents(self, row: int | None = None) -> Contents:
        plain = super().contents(row)
        return Contents(
            plain.tables,
            statistics=plain.statistics,
            samples=plain.samples,
            traces=plain.traces,
            take_out=self._take_class_out,
            merge_refusal="logits kept of two classes are not those of one: classes cannot be merged",
        )

    def _take_class_out(self, tensors: Tensors, meta: dict[str, Any], row: int) -> str:
        said = super()._take_class_out(tensors, meta, row)
        logits = tensors["memory/logits"]
        tensors["memory/logits"] = torch.cat([logits[:, :row], logits[:, row + 1 :]], 1)
        return f"{said}, and its logits of the others"

    def _state(self) -> State:
        tensors, meta = super()._state()
        # Of classes that are there: how much room there is beyond them does not matter.
        if "memory/logits" in tensors:
            tensors["memory/logits"] = tensors["memory/logits"][:, : len(self.classes)]
        return tensors, meta

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self._widen(len(self.classes)) if self.classes else self.memory.payload.clear()
        if self.classes:
            room = self.memory.payload["logits"].shape[1]
            saved = tensors["memory/logits"]
            tensors = tensors | {"memory/logits": F.pad(saved, (0, room - saved.shape[1]), value=UNKNOWN)}
        super()._load_state(tensors, meta)


def logit_distance(logits: Tensor, kept: Tensor) -> Tensor:
    """Mean squared difference of `[n, C]`, over the classes that were met when each sample was kept."""
    known = ~kept.isnan()
    differences = torch.where(known, logits - torch.where(known, kept, 0), 0)
    return differences.square().sum() / known.sum().clamp(min=1)
