"""Streaming linear discriminant analysis: class means, and one covariance for all classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from prol.learner import InputOptions
from prol.methods.closed_form.moments import Moments, Totals
from prol.methods.closed_form.solved import SolvedLearner
from prol.methods.closed_form.solvers import SolvedHead, lda
from prol.options import Share
from prol.state import State


@dataclass(frozen=True)
class SLDAOptions(InputOptions):
    """Options of streaming LDA."""

    shrinkage: Share | Literal["oas"] = "oas"
    """How far the covariance is shrunk towards a multiple of the identity: a share from 0 to 1, or chosen by OAS."""


class SLDA(SolvedLearner):
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
        self.moments.describe_classes()
        state.solves(self.backbone.width + 1, torch.float64)

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        self.moments.add(encoded, rows)

    def subtract(self, encoded: Tensor, rows: Tensor) -> tuple[str, ...]:
        self.moments.subtract(encoded, rows)
        return ()

    def solve(self) -> SolvedHead:
        totals, shrinkage = self.moments.totals(), self.options.shrinkage
        weight, bias = lda(totals, None if shrinkage == "oas" else shrinkage)
        return SolvedHead(weight, bias, totals.counts > 0)

    def familiar(self) -> Totals:
        return self.moments.totals()
