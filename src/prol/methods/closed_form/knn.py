"""Nearest neighbours among the stored features of all images: a reference for methods that store none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.engine.similarity import unit
from prol.learner import InputOptions, Learner
from prol.methods.closed_form.moments import require_usable
from prol.methods.closed_form.recollection import NOT_FOUND, NOT_SUMS, EveryFeature
from prol.options import Count
from prol.state import State


@dataclass(frozen=True)
class KNNOptions(InputOptions):
    """Options of nearest neighbours."""

    k: Count = 5
    """How many neighbours vote; all where fewer are stored."""


class KNN(Learner):
    """Stores the feature of every image; the k nearest by cosine vote, and of equal votes the nearer class wins."""

    name: ClassVar[str] = "knn"
    family: ClassVar[str] = "stored features"
    citation: ClassVar[str] = "Cover and Hart, Nearest Neighbor Pattern Classification, IEEE TIT 1967"
    keeps_samples: ClassVar[bool] = True
    Options: ClassVar[type] = KNNOptions
    options: KNNOptions

    def build(self, state: State) -> None:
        self.stored_features = EveryFeature(state, self.backbone.width, self.backbone.dtype)
        state.on_merge(self._refuse_merging)

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        require_usable(encoded)
        self.stored_features.add(encoded, rows)

    def score(self, encoded: Tensor) -> Tensor:
        """Votes, plus half the cosine to the nearest image of a class: less than one vote, and a rank for all."""
        rows, classes = self.stored_features.rows.rows, len(self.classes)
        cosines = self._cosines(encoded)
        nearest = cosines.topk(min(self.options.k, len(rows)), dim=1).indices
        votes = F.one_hot(rows[nearest], classes).sum(1)
        best = cosines.new_full((cosines.shape[0], classes), -torch.inf)
        return votes + best.scatter_reduce(1, rows.expand_as(cosines), cosines, "amax") / 2

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:
        return self._cosines(encoded).amax(1) if self.stored_features.rows.count else None

    def _cosines(self, encoded: Tensor) -> Tensor:
        """`[B, N]` to all stored features."""
        return unit(encoded.double()) @ self.latest(self._solve).T

    def _solve(self) -> Tensor:
        return unit(self.stored_features.features.rows.double())

    def subtract(self, encoded: Tensor, rows: Tensor) -> Sequence[str]:  # noqa: ARG002
        raise ValueError(f"knn {NOT_FOUND}")

    def _refuse_merging(self) -> None:
        raise ValueError(f"knn {NOT_SUMS}")

    def exemptions(self) -> dict[str, str]:
        return self.stored_features.exemptions(self.name)
