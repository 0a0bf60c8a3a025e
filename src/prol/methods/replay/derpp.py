"""Dark experience replay: what the network said of a sample when it was kept is to be said again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.class_rows import Tensors
from prol.labels import Label
from prol.learner import State
from prol.methods.replay.learner import Drawn, ReplayLearner, ReplayOptions
from prol.methods.replay.views import PARTIAL, apply_views, draw_views


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
        self.memory.add_payload("logits", (room,), self.backbone.dtype)
        if before is None:
            self.memory.add_payload("known", (), torch.int64)
        else:
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
        kept = self.memory.payload
        if len(drawn["logit_slots"]):
            then = kept["logits"][drawn["logit_slots"]][:, : logits.shape[1]]
            known = kept["known"][drawn["logit_slots"]]
            values["logits"] = o.alpha * logit_distance(self._seen_again("logit", drawn), then, known)
            values["labels"] = o.beta * F.cross_entropy(self._seen_again("label", drawn), drawn["label_rows"])
        now = F.pad(logits.detach(), (0, kept["logits"].shape[1] - logits.shape[1]))
        met = torch.full_like(rows, logits.shape[1])
        return values | {"total": torch.stack(list(values.values())).sum()}, {"logits": now, "known": met}

    def _seen_again(self, which: str, drawn: Mapping[str, Tensor]) -> Tensor:
        recalled = self._recalled(drawn[f"{which}_slots"])
        return self._logits(self._features(apply_views(PARTIAL, recalled, drawn[f"{which}_views"])))

    def _take_class_out(self, tensors: Tensors, meta: dict[str, Any], row: int) -> str:
        said = super()._take_class_out(tensors, meta, row)
        _drop_column(tensors, row)
        return f"{said}, and its logits of the others"

    def _put_classes_together(self, tensors: Tensors, meta: dict[str, Any], source: int, into: int) -> None:
        super()._put_classes_together(tensors, meta, source, into)
        # The head's rows become their mean, and logits are linear in them.
        logits, both = tensors["memory/logits"].clone(), tensors["memory/known"] > max(source, into)
        logits[:, into] = torch.where(both, (logits[:, source] + logits[:, into]) / 2, logits[:, into])
        tensors["memory/logits"] = logits
        _drop_column(tensors, source)

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
            tensors = tensors | {"memory/logits": F.pad(saved, (0, room - saved.shape[1]))}
        super()._load_state(tensors, meta)


def _drop_column(tensors: Tensors, row: int) -> None:
    logits, known = tensors["memory/logits"], tensors["memory/known"]
    tensors["memory/logits"] = torch.cat([logits[:, :row], logits[:, row + 1 :]], 1)
    tensors["memory/known"] = known - (known > row).long()


def logit_distance(logits: Tensor, kept: Tensor, known: Tensor) -> Tensor:
    """Mean squared difference of `[n, C]`, over the first `known` classes `[n]`: those met when a sample was kept.

    What the network said then of others, whose rows nothing had trained, is no target.
    """
    counts = torch.arange(logits.shape[1], device=logits.device) < known.unsqueeze(1)
    return torch.where(counts, logits - kept, 0).square().sum() / counts.sum().clamp(min=1)
