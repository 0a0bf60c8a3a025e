"""Dark experience replay: the network is to reproduce the logits that were stored with a sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.classes import Tensors
from prol.methods.replay.learner import Drawn, Losses, Payload, ReplayLearner, ReplayOptions, summed
from prol.methods.replay.sample_memory import SampleMemory
from prol.methods.replay.views import PARTIAL, apply_views, draw_views
from prol.options import NotNegative
from prol.state import State


@dataclass(frozen=True)
class DERPPOptions(ReplayOptions):
    """Options of DER++."""

    alpha: NotNegative = 0.2
    """Weight of the distance to stored logits."""
    beta: NotNegative = 1.0
    """Weight of the memory's cross entropy."""


class StoredLogits:
    """Payload of a memory: logits `[capacity + 1, capacity]`, and how many classes were known when they were stored.

    Only columns of classes that are there are saved, and nothing while there are none.
    """

    def __init__(self, state: State, memory: SampleMemory, dtype: torch.dtype) -> None:
        self._state, self._payload = state, memory.payload
        self._payload["logits"] = torch.zeros(memory.capacity + 1, 0, dtype=dtype, device=state.device)
        self._payload["known"] = torch.zeros(memory.capacity + 1, dtype=torch.int64, device=state.device)
        state.group("memory/logits", self._read_logits, self._load_logits, kind="sample")
        state.group("memory/known", self._read_known, self._load_known, kind="sample")
        state.on_growth(lambda _: self._fit())
        state.on_load(self._fit, self._fit)
        state.on_remove(self._remove_class)
        state.on_combine(self._combine_classes)

    def _fit(self) -> None:
        """Capacity for logits of all classes."""
        before, capacity = self._payload["logits"], 1
        while capacity < self._state.classes:  # by doubling, so that it depends on the number of classes alone
            capacity *= 2
        if not self._state.classes:
            self._payload["logits"] = before[:, :0]
        elif self._state.classes > before.shape[1]:
            self._payload["logits"] = F.pad(before, (0, capacity - before.shape[1]))

    def _read_logits(self) -> dict[str, Tensor]:
        classes = self._state.classes
        return {"": self._payload["logits"][:-1, :classes]} if classes else {}

    def _load_logits(self, saved: Mapping[str, Tensor]) -> None:
        self._payload["logits"].zero_()
        if saved:
            self._payload["logits"][:-1, : self._state.classes] = saved[""]

    def _read_known(self) -> dict[str, Tensor]:
        return {"": self._payload["known"][:-1]} if self._state.classes else {}

    def _load_known(self, saved: Mapping[str, Tensor]) -> None:
        self._payload["known"].zero_()
        if saved:
            self._payload["known"][:-1] = saved[""]

    def _remove_class(self, tensors: Tensors, values: dict[str, Any], row: int) -> str:  # noqa: ARG002
        _drop_column(tensors, row)
        return "its logits of the other images"

    def _combine_classes(self, tensors: Tensors, values: dict[str, Any], source: int, into: int) -> None:  # noqa: ARG002
        # The head's rows become their mean, and logits are linear in them.
        logits, both = tensors["memory/logits"].clone(), tensors["memory/known"] > max(source, into)
        logits[:, into] = torch.where(both, (logits[:, source] + logits[:, into]) / 2, logits[:, into])
        tensors["memory/logits"] = logits
        _drop_column(tensors, source)


def _drop_column(tensors: Tensors, row: int) -> None:
    logits, known = tensors["memory/logits"], tensors["memory/known"]
    tensors["memory/logits"] = torch.cat([logits[:, :row], logits[:, row + 1 :]], 1)
    tensors["memory/known"] = known - (known > row).long()


class DERPP(ReplayLearner):
    """Chunk, stored logits and stored labels in three passes, the memory with two independent draws."""

    name: ClassVar[str] = "derpp"
    citation: ClassVar[str] = "Buzzega et al., Dark Experience for General Continual Learning, NeurIPS 2020"
    Options: ClassVar[type] = DERPPOptions
    options: DERPPOptions

    def build(self, state: State) -> None:
        super().build(state)
        self.stored_logits = StoredLogits(state, self.memory, self.backbone.dtype)

    def draw(self, rows: Tensor) -> Drawn:
        drawn: Drawn = {"views": draw_views(PARTIAL, len(rows), self.size, self.random)}
        for which in ("logit", "label"):
            memory = self.draw_memory()
            views = draw_views(PARTIAL, len(memory["slots"]), self.size, self.random)
            drawn |= {f"{which}_slots": memory["slots"], f"{which}_rows": memory["memory_rows"]}
            drawn[f"{which}_views"] = views
        return drawn

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        o, stored = self.options, self.memory.payload
        logits = self.logits(self.features(apply_views(PARTIAL, images, drawn["views"])))
        values = {"chunk": F.cross_entropy(logits, rows)}
        if len(drawn["logit_slots"]):
            then = stored["logits"][drawn["logit_slots"]][:, : logits.shape[1]]
            known = stored["known"][drawn["logit_slots"]]
            values["logits"] = o.alpha * logit_distance(self._recalled_logits("logit", drawn), then, known)
            values["labels"] = o.beta * F.cross_entropy(self._recalled_logits("label", drawn), drawn["label_rows"])
        now = F.pad(logits.detach(), (0, stored["logits"].shape[1] - logits.shape[1]))
        known = torch.full_like(rows, logits.shape[1])
        return summed(values), {"logits": now, "known": known}

    def _recalled_logits(self, which: str, drawn: Drawn) -> Tensor:
        recalled = self.recalled(drawn[f"{which}_slots"])
        return self.logits(self.features(apply_views(PARTIAL, recalled, drawn[f"{which}_views"])))


def logit_distance(logits: Tensor, stored: Tensor, known: Tensor) -> Tensor:
    """Mean squared difference of `[n, C]`, over the first `known` classes `[n]`: those seen when a sample was stored.

    Logits of the others, whose rows were untrained then, are no targets.
    """
    counts = torch.arange(logits.shape[1], device=logits.device) < known.unsqueeze(1)
    return torch.where(counts, logits - stored, 0).square().sum() / counts.sum().clamp(min=1)
