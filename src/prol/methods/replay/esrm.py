"""ESRM: a memory that keeps what the network is least sure of, and groups of samples drawn together by class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.backbones import Backbone
from prol.engine.similarity import unit
from prol.methods.replay.cross_contrast import cross_contrast, softened_divergence
from prol.methods.replay.entropy import above_median, prediction_entropy, surest_replaced
from prol.methods.replay.learner import Drawn, ReplayLearner, ReplayOptions
from prol.methods.replay.projector import drawn_projector
from prol.methods.replay.sample_memory import Insertion
from prol.methods.replay.views import FULL, apply_views, draw_views

TEMPERATURE = 4.0
"""Of both predictions that are to agree."""


@dataclass(frozen=True)
class ESRMOptions(ReplayOptions):
    """Dials of ESRM."""

    contrast: float = 0.5
    """Weight of the contrast between groups."""
    projection: int = 128
    """How many numbers a feature is projected to."""
    detach_clean: bool = False
    """Whether the prediction of the image as it is only teaches that of its view, and is not moved towards it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.projection < 1:
            raise ValueError(f"projection must be at least 1, got {self.projection}")
        if not 0 <= self.contrast < float("inf"):
            raise ValueError(f"contrast must be a finite number of at least 0, got {self.contrast}")


class ESRM(ReplayLearner):
    """Chunk and memory as they are and as views, which are to agree; unsure and sure, new and kept are drawn together.

    Of each sample the entropy of its prediction is kept, as the network in evaluation saw it before the step that it
    came with, and anew whenever a task begins. Where one has to go, it is the surest of the class that would lose one.
    """

    name: ClassVar[str] = "esrm"
    citation: ClassVar[str] = (
        "Wang et al., Dealing with Synthetic Data Contamination in Online Continual Learning, NeurIPS 2024"
    )
    uses_tasks: ClassVar[bool] = True
    Options: ClassVar[type] = ESRMOptions
    options: ESRMOptions

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.memory.add_payload("entropy", (), self.backbone.dtype)

    def _make_extras(self) -> dict[str, nn.Module]:
        b = self.backbone
        return {"projector": drawn_projector(b.width, self.options.projection, self.seed, b.device, b.dtype)}

    def _draw(self, rows: Tensor) -> Drawn:
        drawn = self._draw_memory()
        count = len(rows) + len(drawn["slots"])
        return drawn | {"views": draw_views(FULL, count, self.size, self.random)}

    def _losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        o = self.options
        entropy = self._entropy(images)
        together = torch.cat([images, self._recalled(drawn["slots"])])
        classes = torch.cat([rows, drawn["memory_rows"]])
        viewed = self._logits(self._features(apply_views(FULL, together, drawn["views"])))
        features = self._features(together)
        clean = self._logits(features)
        teacher = clean.detach() if o.detach_clean else clean
        values = {
            "views": F.cross_entropy(viewed, classes),
            "clean": F.cross_entropy(clean, classes),
            "agreement": softened_divergence(viewed, teacher, TEMPERATURE),
        }
        projected = unit(self.extras["projector"](features))
        values["contrast"] = o.contrast * group_contrast(projected, classes, above_median(entropy))
        return values | {"total": torch.stack(list(values.values())).sum()}, {"entropy": entropy}

    @torch.no_grad()
    def _entropy(self, images: Tensor) -> Tensor:
        """Of predictions for `[B, 3, S, S]` as evaluation makes them, `[B]`; running statistics stay."""
        return prediction_entropy(self._logits(self._features(images, "eval")))

    def _planned(self, insertion: Insertion) -> Drawn:
        return {"new_slots": insertion.named}

    def _keep(self, chunk: Tensor, rows: Tensor, drawn: Drawn, payload: dict[str, Tensor], valid: Tensor) -> None:
        entropy = payload["entropy"]
        there = self.memory.rows[: self.memory.capacity]
        written, source = surest_replaced(self.memory.payload["entropy"], there, drawn["new_slots"], rows, entropy)
        self.memory.move(written, source, rows, chunk, payload, valid)

    def _start_task(self) -> None:
        self._look_again()
        super()._start_task()

    @torch.no_grad()
    def _look_again(self) -> None:
        """The entropy of all that is kept, as the network sees it now."""
        for start in range(0, len(self.memory), self.predict_batch):
            slots = torch.arange(start, min(start + self.predict_batch, len(self.memory)), device=self.backbone.device)
            self.memory.payload["entropy"][slots] = self._entropy(self._recalled(slots))


def group_contrast(projected: Tensor, rows: Tensor, unsure: Tensor) -> Tensor:
    """Contrast between unsure and sure samples of the chunk, and between chunk and memory, each in both directions.

    Args:
        projected: unit vectors `[B + n, D]`, the chunk's first.
        rows: their class rows `[B + n]`.
        unsure: which of the chunk are, bool `[B]`.
    """
    count = len(unsure)
    new, kept = projected[:count], projected[count:]
    same = rows.unsqueeze(1) == rows
    among = same[:count, :count]
    total = cross_contrast(new, new, among, unsure, ~unsure) + cross_contrast(new, new, among, ~unsure, unsure)
    if len(kept):
        all_new, all_kept = torch.ones_like(unsure), torch.ones_like(rows[count:], dtype=torch.bool)
        across = same[:count, count:]
        total = total + cross_contrast(new, kept, across, all_new, all_kept)
        total = total + cross_contrast(kept, new, across.T, all_kept, all_new)
    return total
