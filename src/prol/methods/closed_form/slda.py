"""Streaming linear discriminant analysis: class means, and one covariance for all classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.learner import InputOptions, Learner
from prol.methods.closed_form.class_removal import TAKEN, require_left_over
from prol.methods.closed_form.familiarity import RelativeDistance
from prol.methods.closed_form.moments import Moments
from prol.methods.closed_form.solvers import SolvedHead, lda
from prol.options import Share
from prol.state import State


@dataclass(frozen=True)
class SLDAOptions(InputOptions):
    """Options of streaming LDA."""

    shrinkage: Share | Literal["oas"] = "oas"
    """How far the covariance is shrunk towards a multiple of the identity: a share from 0 to 1, or chosen by OAS."""


class SLDA(Learner):
    """Adds up the features' second moments and class sums; the classifier is solved from them for predictions.

    Learning is the same in any order and for any chunk size, up to rounding.
    """

    name: ClassVar[str] = "slda"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Hayes and Kanan, Deep Streaming Linear Discriminant Analysis, CVPR Workshops 2020"
    additive: ClassVar[bool] = True
    Options: ClassVar[type] = SLDAOptions
    options: SLDAOptions

    def build(self, state: State) -> None:
        self.moments = Moments(state, self.backbone.width, torch.float64)
        state.count_by(self.moments.class_counts)
        state.solves(self.backbone.width + 1, torch.float64)
        state.on_remove(self._remove_class)
        state.trace(removed=self.moments.spread_trace)

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        self.moments.add(encoded, rows)

    def subtract(self, encoded: Tensor, rows: Tensor) -> tuple[str, ...]:
        require_left_over(self.moments.squares(), encoded)
        self.moments.add(encoded, rows, times=-1)
        return ()

    def score(self, encoded: Tensor) -> Tensor:
        return self.latest(self._solve).scores(encoded)

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:
        if not bool(self.moments.counts.rows.any()):
            return None
        return self.latest(self._distance).familiarity(encoded)

    def _solve(self) -> SolvedHead:
        totals, shrinkage = self.moments.totals(), self.options.shrinkage
        weight, bias = lda(totals, None if shrinkage == "oas" else shrinkage)
        return SolvedHead(weight, bias, totals.counts > 0)

    def _distance(self) -> RelativeDistance:
        return RelativeDistance.of(self.moments.totals())

    def _remove_class(self, tensors: dict[str, Tensor], values: dict[str, Any], row: int) -> str:  # noqa: ARG002
        self.moments.remove_class(tensors, row)
        return TAKEN
