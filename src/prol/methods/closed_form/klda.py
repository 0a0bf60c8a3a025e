"""KLDA: random Fourier features, and linear discriminant analysis with an optional ensemble."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.learner import InputOptions
from prol.methods.closed_form.moments import TAKEN, Moments, Totals
from prol.methods.closed_form.random_features import RandomLayer, fourier_features, normal, uniform
from prol.methods.closed_form.solved import WIDEST, SolvedLearner
from prol.methods.closed_form.solvers import SolvedHead, class_means, factor
from prol.options import Count, Positive, Repeats
from prol.state import State


@dataclass(frozen=True)
class KLDAOptions(InputOptions):
    """Options of KLDA."""

    features: Count = 5_000
    """How many random features."""
    gamma: Positive = 1e-4
    """Width of the kernel exp(-gamma |x - x'|²) that the random features approximate."""
    ridge: Positive = 0.1
    """What is added to the diagonal of the scatter within classes."""
    ensemble: Repeats = 1
    """How many classifiers, each with its own random features; the mean of their probabilities decides."""
    accumulate: Literal["float64", "float32"] = "float64"
    """Number type of the statistics; float32 halves their size."""


class KLDA(SolvedLearner):
    """Adds up the second moments of φ = √(2/M) cos(√(2γ) hΩ + b), Ω and b random; the nearest class mean wins.

    Distances are Mahalanobis', by the scatter within classes, which is solved for predictions.
    """

    name: ClassVar[str] = "klda"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Momeni et al., Continual Learning Using a Kernel-Based Method (KLDA), AAAI 2025"
    additive: ClassVar[bool] = True
    Options: ClassVar[type] = KLDAOptions
    options: KLDAOptions

    def build(self, state: State) -> None:
        o = self.options
        accumulate = torch.float64 if o.accumulate == "float64" else torch.float32
        self.moments = [Moments(state.scope(f"moments.{e}"), o.features, accumulate) for e in range(o.ensemble)]
        state.count_by(self.moments[0].class_counts)
        state.solves(o.ensemble * (o.features + 1), torch.float64)
        state.on_remove(self._remove_class)
        state.trace(removed=self.moments[0].spread_trace)
        self.layer = RandomLayer(state, self.seed, self._draw)

    def _draw(self, random: torch.Generator) -> dict[str, Tensor]:
        b, o = self.backbone, self.options
        weight = normal((o.ensemble, b.width, o.features), random, b.device, b.dtype)
        return {
            "weight": weight,
            "phase": uniform((o.ensemble, o.features), 0, 2 * math.pi, random, b.device, b.dtype),
        }

    def embed(self, encoded: Tensor, member: int = 0) -> Tensor:
        return fourier_features(encoded, self.layer["weight"][member], self.layer["phase"][member], self.options.gamma)

    def update(self, encoded: Tensor, rows: Tensor, times: int = 1) -> None:
        for member, moments in enumerate(self.moments):
            moments.add(self.embed(encoded, member), rows, times)

    def subtract(self, encoded: Tensor, rows: Tensor) -> tuple[str, ...]:
        self.moments[0].require_added(self.embed(encoded))
        self.update(encoded, rows, times=-1)
        return ()

    def score(self, encoded: Tensor) -> Tensor:
        heads = self.latest(self.solve)
        scores = [head.scores(self.embed(encoded, member)) for member, head in enumerate(heads)]
        if len(scores) == 1:
            return scores[0]
        mean = torch.stack([one.log_softmax(1) for one in scores]).logsumexp(0) - math.log(len(scores))
        return mean.masked_fill(~heads[0].seen, -torch.inf)

    def solve(self) -> list[SolvedHead]:
        return [nearest_mean(moments.totals(), self.options.ridge) for moments in self.moments]

    def familiar(self) -> Totals:
        """Moments of the first random features: one is as good as another."""
        return self.moments[0].part(0, min(WIDEST, self.options.features))

    def _remove_class(self, tensors: dict[str, Tensor], values: dict[str, Any], row: int) -> str:  # noqa: ARG002
        for moments in self.moments:
            moments.remove_class(tensors, row)
        return TAKEN


def nearest_mean(totals: Totals, strength: float) -> SolvedHead:
    """Scores are -½ N (φ - m_c)ᵀΣ⁻¹(φ - m_c) but for what all classes share, Σ = G - Σ_c n_c m_c m_cᵀ + strength I."""
    means = class_means(totals.sums, totals.counts)
    scatter = torch.addmm(totals.gram, means.T, totals.sums, alpha=-1)
    scatter.diagonal().add_(strength)
    weight = totals.counts.sum() * torch.cholesky_solve(means.T, factor(scatter)).T
    return SolvedHead(weight, -0.5 * (means * weight).sum(1), totals.counts > 0)
