"""Nearest class mean: the plainest learner that forgets nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones import Augment, Backbone, InputRange, Pixels, evaluation_input
from prol.class_rows import AUGMENTED, Contents
from prol.labels import Label
from prol.learner import Amount, Footprint, Learner, State
from prol.parts.class_removal import sums_of
from prol.parts.frozen_pass import FrozenPass
from prol.parts.inputs import require_not_augmented, require_nothing_drawn, training_input
from prol.parts.rows import RowTable
from prol.parts.similarity import cosine_to_all
from prol.sums import Sums


@dataclass(frozen=True)
class NCMOptions:
    """Dials of the nearest class mean."""

    distance: Literal["cosine", "euclidean"] = "cosine"
    augment: Augment = "none"
    input_range: InputRange = "backbone"
    crop_pct: float | None = None


class NCM(Learner):
    """Keeps the sum of features and a count for each class; scores are similarities to the class means.

    Learning is the same in any order and for any chunk size, up to rounding.
    """

    name: ClassVar[str] = "ncm"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Mensink et al., Distance-Based Image Classification, TPAMI 2013; Janson et al., 2022"
    fixed = "all"
    Options: ClassVar[type] = NCMOptions
    options: NCMOptions

    def __init__(self, backbone: Backbone, options: NCMOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.preprocessing = backbone.preprocessing.overridden(options.input_range, options.crop_pct)
        self._look = FrozenPass(backbone.features, backbone.acceleration.captured)
        # Sums in float64, so that a long stream does not round a class's late samples away.
        self.sums = RowTable((backbone.width,), backbone.device, torch.float64)
        self.counts = RowTable((), backbone.device, torch.float64)

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.sums.append(torch.zeros(len(names), self.backbone.width))
        self.counts.append(torch.zeros(len(names)))

    @torch.no_grad()
    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        inputs = training_input(pixels, self.preprocessing, self.backbone, self.options.augment, self.random)
        features = self._look(inputs).double()
        self.sums.rows.index_add_(0, rows, features)
        self.counts.rows.index_add_(0, rows, torch.ones_like(rows, dtype=torch.float64))

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self._look(evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype))

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        features = (self._fixed(pixels) if fixed is None else fixed).double()
        means = self.sums.rows / self.counts.rows.clamp(min=1).unsqueeze(1)
        scores = cosine_to_all(features, means) if self.options.distance == "cosine" else -torch.cdist(features, means)
        return scores.masked_fill(self.counts.rows == 0, -torch.inf)  # announced, but nothing seen of it yet

    @torch.no_grad()
    def _unlearn(self, pixels: Pixels, rows: Tensor) -> tuple[str, ...]:
        require_not_augmented(self.options.augment)
        self.sums.rows.index_add_(0, rows, self._fixed(pixels).double(), alpha=-1)
        self.counts.rows.index_add_(0, rows, torch.ones_like(rows, dtype=torch.float64), alpha=-1)
        return ()

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        traces = () if self.options.augment == "none" else (AUGMENTED,)
        return Contents(sums_of(), statistics=("sums", "counts"), traces=traces)

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor | None:
        return self._scores(pixels, fixed).amax(1) if bool(self.counts.rows.any()) else None

    def added_up(self) -> Sums:
        require_nothing_drawn(self.options.augment)
        return Sums.of(self._state(), tables=("sums", "counts"))

    def class_counts(self) -> Tensor:
        return self.counts.rows

    def footprint(self) -> Footprint:
        nothing = Amount(0, 0)
        return Footprint(nothing, nothing, Amount.of(self.sums.rows, self.counts.rows), nothing)

    def _state(self) -> State:
        return {"sums": self.sums.rows, "counts": self.counts.rows}, {}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:  # noqa: ARG002
        self.sums.replace(tensors["sums"])
        self.counts.replace(tensors["counts"])
