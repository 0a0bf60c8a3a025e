"""Nearest class mean: the simplest learner that forgets nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from prol.engine.similarity import cosine_to_all
from prol.learner import InputOptions, Learner
from prol.state import State


@dataclass(frozen=True)
class NCMOptions(InputOptions):
    """Options of the nearest class mean."""

    distance: Literal["cosine", "euclidean"] = "cosine"
    """Similarity of features and class means."""


class NCM(Learner):
    """Stores the sum of features and a count for each class; scores are similarities to the class means.

    Learning is the same in any order and for any chunk size, up to rounding.
    """

    name: ClassVar[str] = "ncm"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Mensink et al., Distance-Based Image Classification, TPAMI 2013; Janson et al., 2022"
    additive: ClassVar[bool] = True
    error_slope: ClassVar[tuple[float, float]] = (0.14, 0.05)
    Options: ClassVar[type] = NCMOptions
    options: NCMOptions

    def build(self, state: State) -> None:
        # Sums in float64, so that a long stream does not round a class's late samples away.
        self.sums = state.table("sums", self.backbone.width, dtype=torch.float64, kind="statistic", writes="chunk")
        self.counts = state.table("counts", dtype=torch.float64, kind="statistic", counts=True, writes="chunk")

    def update(self, encoded: Tensor, rows: Tensor, times: int = 1) -> None:
        self.sums.add(rows, encoded, times)
        self.counts.add(rows, torch.ones_like(rows), times)

    def subtract(self, encoded: Tensor, rows: Tensor) -> tuple[str, ...]:
        self.update(encoded, rows, times=-1)
        return ()

    def score(self, encoded: Tensor) -> Tensor:
        features, means = encoded.double(), self.sums.rows / self.counts.rows.clamp(min=1).unsqueeze(1)
        scores = cosine_to_all(features, means) if self.options.distance == "cosine" else -torch.cdist(features, means)
        return scores.masked_fill(self.counts.rows == 0, -torch.inf)  # announced, but nothing seen of it yet

    def score_familiarity(self, encoded: Tensor) -> Tensor:
        return self.score(encoded).amax(1)
