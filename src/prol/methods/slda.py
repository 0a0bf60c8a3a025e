"""Streaming linear discriminant analysis: class means, and one covariance for all classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones import Augment, Backbone, InputRange, Pixels, evaluation_input
from prol.class_rows import AUGMENTED, Contents
from prol.labels import Label
from prol.learner import Amount, Footprint, Learner, State
from prol.parts.class_removal import moments_contents, require_left_over
from prol.parts.familiarity import LatestDistance
from prol.parts.frozen_pass import FrozenPass
from prol.parts.inputs import require_not_augmented, require_nothing_drawn, training_input
from prol.parts.moments import Moments
from prol.parts.solvers import SolvedHead, lda
from prol.sums import Sums


@dataclass(frozen=True)
class SLDAOptions:
    """Dials of streaming LDA."""

    shrinkage: float | Literal["oas"] = "oas"
    """How far the covariance is shrunk towards a multiple of the identity: a share from 0 to 1, or chosen by OAS."""
    augment: Augment = "none"
    input_range: InputRange = "backbone"
    crop_pct: float | None = None

    def __post_init__(self) -> None:
        if self.shrinkage != "oas" and not 0 <= self.shrinkage <= 1:
            raise ValueError(f"shrinkage must be from 0 to 1, or oas, got {self.shrinkage}")


class SLDA(Learner):
    """Adds up the features' second moments and class sums; the classifier is solved from them when it is asked.

    Learning is the same in any order and for any chunk size, up to rounding.
    """

    name: ClassVar[str] = "slda"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Hayes and Kanan, Deep Streaming Linear Discriminant Analysis, CVPR Workshops 2020"
    fixed = "all"
    Options: ClassVar[type] = SLDAOptions
    options: SLDAOptions

    def __init__(self, backbone: Backbone, options: SLDAOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.preprocessing = backbone.preprocessing.overridden(options.input_range, options.crop_pct)
        self._look = FrozenPass(backbone.features, backbone.acceleration.captured)
        self.moments = Moments(backbone.width, backbone.device, torch.float64)
        self._solved: SolvedHead | None = None
        self._distance = LatestDistance()

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.moments.add_classes(len(names))
        self._solved = None

    @torch.no_grad()
    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        inputs = training_input(pixels, self.preprocessing, self.backbone, self.options.augment, self.random)
        self.moments.add(self._look(inputs), rows)
        self._solved = None

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self._look(evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype))

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        return self._head().scores(self._fixed(pixels) if fixed is None else fixed)

    def _head(self) -> SolvedHead:
        if self._solved is None:
            totals, shrinkage = self.moments.totals(), self.options.shrinkage
            weight, bias = lda(totals, None if shrinkage == "oas" else shrinkage)
            self._solved = SolvedHead(weight, bias, totals.counts > 0)
        return self._solved

    @torch.no_grad()
    def _unlearn(self, pixels: Pixels, rows: Tensor) -> tuple[str, ...]:
        require_not_augmented(self.options.augment)
        features = self._fixed(pixels)
        require_left_over(self.moments.squares(), features)
        self.moments.add(features, rows, times=-1)
        self._solved = None
        self._distance.forget()
        return ()

    def contents(self, row: int | None = None) -> Contents:
        others = () if self.options.augment == "none" else (AUGMENTED,)
        return moments_contents("", self.moments.counts.rows, row, others)

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor | None:
        distance = self._distance(self.moments.counts.rows, self.moments.totals)
        return None if distance is None else distance.familiarity(self._fixed(pixels) if fixed is None else fixed)

    def added_up(self) -> Sums:
        require_nothing_drawn(self.options.augment)
        return Sums.of(self._state(), tables=("sums", "counts"), totals=("gram.*",))

    def class_counts(self) -> Tensor:
        return self.moments.counts.rows

    def footprint(self) -> Footprint:
        head = Amount.of(torch.empty(len(self.classes), self.backbone.width + 1, device="meta", dtype=torch.float64))
        nothing = Amount(0, 0)
        return Footprint(nothing, head, Amount.of(*self.moments.tensors().values()), nothing)

    def _state(self) -> State:
        return self.moments.tensors(), {}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:  # noqa: ARG002
        self.moments.load(tensors)
        self._solved = None
        self._distance.forget()
