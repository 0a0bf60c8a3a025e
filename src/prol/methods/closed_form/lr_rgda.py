"""LR-RGDA: a Gaussian for each class, whose covariance adds few directions of its own to one that all classes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.learner import InputOptions
from prol.methods.closed_form.moments import Moments, Totals, require_usable
from prol.methods.closed_form.solved import SolvedLearner
from prol.methods.closed_form.solvers import class_means, factor, within_classes
from prol.options import Count, NotNegative, Positive
from prol.state import State

SAMPLES_AT_ONCE = 64
"""Samples that enter sketches together, so that memory does not grow with the chunk."""


@dataclass(frozen=True)
class LRRGDAOptions(InputOptions):
    """Options of LR-RGDA."""

    rank: Count = 32
    """Directions in which each class has its own covariance."""
    own: NotNegative = 0.3
    """Weight of the class covariance, α₁."""
    shared: NotNegative = 2.0
    """Weight of the covariance within all classes, α₂."""
    identity: Positive = 0.5
    """Weight of the identity, α₃."""


@dataclass(frozen=True)
class LowRankGaussians:
    """Gaussians N(m_c, B + V_cV_cᵀ) in coordinates in which B is the identity: `whiten` `[D, D]` leads there.

    `means` `[C, D]`. By Woodbury the inverse of I + V_cV_cᵀ is I - P_cᵀP_c with P_c = K_c⁻¹V_cᵀ, K_cK_cᵀ = I + V_cᵀV_c:
    `inner` `[C, r, D]` has P_c, `inner_means` `[C, r]` P_c m_c, and `volumes` `[C]` log |K_c|.
    """

    whiten: Tensor
    means: Tensor
    inner: Tensor
    inner_means: Tensor
    volumes: Tensor
    seen: Tensor

    @classmethod
    def of(cls, base: Tensor, means: Tensor, own: Tensor, seen: Tensor) -> LowRankGaussians:
        """From B `[D, D]`, means `[C, D]` and V_cᵀ `[C, r, D]`."""
        identity = torch.eye(len(base)).to(base)
        whiten = torch.linalg.solve_triangular(factor(base), identity, upper=False)
        turned = own @ whiten.T
        small = turned @ turned.mT + torch.eye(own.shape[1]).to(base)
        lower = torch.linalg.cholesky(small)
        inner, means = torch.linalg.solve_triangular(lower, turned, upper=False), means @ whiten.T
        volumes = lower.diagonal(dim1=1, dim2=2).log().sum(1)
        return cls(whiten, means, inner, (inner @ means.unsqueeze(2)).squeeze(2), volumes, seen)

    def scores(self, features: Tensor) -> Tensor:
        """Logarithmic densities `[B, C]` of features `[B, D]`, but for what all classes share."""
        z = features.to(self.whiten) @ self.whiten.T
        linear = z @ self.means.T - self.means.square().sum(1) / 2
        own = (z @ self.inner.flatten(0, 1).T).view(-1, *self.inner.shape[:2]) - self.inner_means
        return (linear + own.square().sum(2) / 2 - self.volumes).masked_fill(~self.seen, -torch.inf)


class LRRGDA(SolvedLearner):
    """Scores are densities of N(m_c, α₁S_c + α₂Σ + α₃I), S_c of rank r in directions of the class alone.

    The directions are a sketch: of those so far and a chunk's samples, the r along which a class varies most remain.
    """

    name: ClassVar[str] = "lr_rgda"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "LR-RGDA: low-rank regularised Gaussian discriminant analysis, arXiv 2602.00144, 2026"
    Options: ClassVar[type] = LRRGDAOptions
    options: LRRGDAOptions

    def build(self, state: State) -> None:
        width = self.backbone.width
        self.moments = Moments(state, width, torch.float64)
        shape = (min(self.options.rank, width), width)
        self.sketch = state.table("sketch", shape, kind="statistic", combine="keep")
        self.moments.describe_classes()
        state.solves((shape[0] + 1) * (width + 1), torch.float64)
        state.on_combine(self._combine_classes)
        state.trace(merged="of both classes' directions the leading ones stay")

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        require_usable(encoded)
        for x, of in zip(torch.split(encoded, SAMPLES_AT_ONCE), torch.split(rows, SAMPLES_AT_ONCE), strict=True):
            self._sketch(x.double(), of)
            self.moments.add(x, of)

    def _sketch(self, x: Tensor, rows: Tensor) -> None:
        """Adds samples `[B, D]` of class rows `[B]` to the sketches, before they are added to the moments."""
        classes, place = torch.unique(rows, return_inverse=True)
        member = (place == torch.arange(len(classes), device=rows.device).unsqueeze(1)).to(x)
        fresh, known = member.sum(1), self.moments.counts.rows[classes]
        means = (member @ x) / fresh.unsqueeze(1)
        step = class_means(self.moments.sums.rows[classes], known) - means
        step *= (known * fresh / (known + fresh)).sqrt().unsqueeze(1)
        centred = member.unsqueeze(2) * (x - means.unsqueeze(1))
        stacked = torch.cat([self.sketch.rows[classes].double(), centred, step.unsqueeze(1)], dim=1)
        self.sketch.rows[classes] = leading_rows(stacked, self.sketch.rows.shape[1]).to(self.sketch.rows)

    def solve(self) -> LowRankGaussians:
        o, totals = self.options, self.moments.totals()
        means, base = within_classes(totals)
        base.mul_(o.shared).diagonal().add_(o.identity)
        scale = (o.own / totals.counts.clamp(min=1)).sqrt()
        return LowRankGaussians.of(base, means, scale.view(-1, 1, 1) * self.sketch.rows.double(), totals.counts > 0)

    def familiar(self) -> Totals:
        return self.moments.totals()

    def _combine_classes(self, tensors: dict[str, Tensor], values: dict[str, Any], source: int, into: int) -> None:  # noqa: ARG002
        both, sketch = [source, into], tensors["sketch"]
        counts, sums = tensors["counts"][both], tensors["sums"][both]
        step = torch.diff(class_means(sums, counts), dim=0) * (counts.prod() / counts.sum().clamp(min=1)).sqrt()
        stacked = torch.cat([sketch[both].double().flatten(0, 1), step]).unsqueeze(0)
        sketch[into] = leading_rows(stacked, sketch.shape[1])[0].to(sketch)


def leading_rows(stacked: Tensor, rank: int) -> Tensor:
    """Rows `[P, rank, D]` whose products AᵀA are nearest to those of `stacked` `[P, K, D]`: equal up to that rank.

    With eigenvectors v of AAᵀ they are vᵀA, the largest first.
    """
    vectors: Tensor = torch.linalg.eigh(stacked @ stacked.mT)[1]
    return vectors.flip(2)[:, :, :rank].mT @ stacked
