"""The Gaussian classifier of PROL+: one covariance within classes with a fixed prior, and class means of one length.

S is the scatter within classes of N samples of C classes, v the variance of each feature over all samples, to which
the mean variance of all features is added as `FEW` samples more, and l the level of each feature: 0 for the network's
own feature, then one more with each block away from it, random features furthest. With
f = N - C degrees of freedom, k prior samples and the prior variances p = v g^(l D / (f + D)), g = `LEVEL_GROWTH` and
D = `DEPTH_SAMPLES`, and T the scatter of all samples about their mean, which counts as t = 100 / (1 + f / 10) samples,

    Σ = (S + k diag p + t T / N) / (f + k + t).

So features of earlier blocks count less until enough samples say how they vary, and what all samples have in common
counts less even while there is one of each class. Nothing is chosen on the data that a few samples could mislead. With
μ the mean of all class means and m that of a class less μ, the class scores (x - μ)ᵀΣ⁻¹m / √(mᵀΣ⁻¹m): all means have
the same length, so a class whose mean is mostly noise does not seem far away.

A handful of samples says little about μ and Σ. There the score is a mean of this one and of the cosine of the network's
own feature to that of the class, brought to one scale, with weight 1 / (1 + (N / `HANDFUL`)²) for the cosine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.closed_form.moments import ClassTotals, Totals
from prol.methods.closed_form.solvers import NEGLIGIBLE, SolvedHead, class_means, factor

LEVEL_GROWTH = 1.75
"""Factor of the prior variance from one level to the next, before there are degrees of freedom."""
DEPTH_SAMPLES = 1000.0
"""Degrees of freedom at which the prior of an earlier block has lost half of its logarithm."""
OVERALL_SAMPLES = 100.0
"""Samples that the covariance of all samples counts for before there are degrees of freedom."""
OVERALL_FREEDOM = 10.0
"""Degrees of freedom at which it counts for half as many."""
FEW = 5
"""Samples that the mean variance of all features counts for in that of each."""
LEAST_MARGIN = 1e-6
"""Least margin of the cosine among class means: below it, they have the same direction."""
LEAST_SQUARE = 1e-6
"""Least squared length of a mean: below it, classes are the same."""
DOUBLE = 50_000
"""Samples from which matrices are factored in float64: their largest eigenvalue grows with the samples."""
HANDFUL = 20.0
"""Samples at which the cosine to class means counts as much as the Gaussian, from ten times as many on nothing."""
NEARNESS = 6.0
"""Weight of the distance to the nearest class beside the angle to it, in the familiarity of an image."""
MANY_CLASSES = 4
"""With more than a share of one in so many classes to features, the covariance of all samples is factored anew."""


@dataclass(frozen=True)
class Metric:
    """Σ⁻¹ by the lower Cholesky factor `[M, M]` of Σ / `weight` with each feature divided by its `deviation` `[M]`."""

    lower: Tensor
    deviation: Tensor
    weight: float

    @classmethod
    def of(
        cls, totals: Totals, scatter: Tensor, levels: Tensor, freedom: float, samples: float, overall: float = 0.0
    ) -> Metric:
        """From a scatter `[M, M]`, which is overwritten, with a prior of so many samples.

        The scatter has so many degrees of `freedom`, and `overall` more of what all samples have in common.
        """
        deviation = (samples * prior_variances(totals, levels)).sqrt()
        largest = float((totals.gram.diagonal() / deviation.square()).max())
        deviation = deviation.to(scatter)
        scatter.div_(deviation).div_(deviation.unsqueeze(1)).diagonal().add_(1)
        lower = factor(scatter.to(working_dtype(freedom)), largest)
        return cls(lower, deviation.to(lower), freedom + samples + overall)

    def solve(self, x: Tensor) -> Tensor:
        """Σ⁻¹x for each row of `[R, M]`."""
        # `cholesky_solve` copies the factor, which takes longer than a few rows themselves.
        solved: Tensor = torch.linalg.solve_triangular(self.lower.mT, self._whitened(x), upper=True)
        return solved.T / self.deviation * self.weight

    def squares(self, x: Tensor) -> Tensor:
        """xᵀΣ⁻¹x for each row of `[R, M]`, `[R, 1]`."""
        return self._whitened(x).square().sum(0).unsqueeze(1) * self.weight

    def _whitened(self, x: Tensor) -> Tensor:
        rows = (x.to(self.lower) / self.deviation).T
        whitened: Tensor = torch.linalg.solve_triangular(self.lower, rows, upper=False)
        return whitened


@dataclass(frozen=True)
class Gaussian:
    """The classifier: `centre` μ `[M]`, `solved` Σ⁻¹m `[C, M]` and squared `lengths` mᵀΣ⁻¹m `[C]` of class means m."""

    metric: Metric
    centre: Tensor
    solved: Tensor
    lengths: Tensor
    seen: Tensor
    samples: float
    """Samples from which the covariance is estimated."""

    @classmethod
    def of(cls, totals: Totals, levels: Tensor, samples: float) -> Gaussian:
        seen, means = totals.counts > 0, class_means(totals.sums, totals.counts)
        freedom = float(totals.counts.sum() - seen.sum())
        count = totals.counts.sum()
        overall = overall_samples(freedom)
        share, mean = overall / float(count), totals.sums.sum(0) / count
        roots = (totals.counts.sqrt().unsqueeze(1) * means).to(totals.gram)
        scatter = torch.addmm(totals.gram, roots.T, roots, beta=1 + share, alpha=-1)
        scatter.addr_(mean.to(scatter), mean.to(scatter), alpha=-overall)
        metric = Metric.of(totals, scatter, levels, freedom, samples, overall)
        means = means.to(metric.lower)
        centre = means[seen].mean(0)
        apart = (means - centre) * seen.unsqueeze(1)
        solved = metric.solve(apart)
        return cls(metric, centre, solved, squared_lengths(solved, apart), seen, float(count))

    def with_means(self, before: ClassTotals, now: ClassTotals) -> Gaussian:
        """The same covariance with the class means of other sums, solved for classes whose mean has moved.

        `before` are the sums of this one, whose classes are the first of those of `now`.
        """
        seen, means, added = now.counts > 0, class_means(*now).to(self.centre), len(now.counts) - len(before.counts)
        known = class_means(*before).to(self.centre).where((before.counts > 0).unsqueeze(1), self.centre)
        moved = (means - torch.cat([known, self.centre.expand(added, -1)])) * seen.unsqueeze(1)
        rows = moved.any(1).nonzero().flatten()
        centre = means[seen].mean(0)
        solved = torch.cat([self.solved, self.solved.new_zeros(added, len(centre))])
        solved[rows] += self.metric.solve(moved[rows])
        solved = (solved - self.metric.solve((centre - self.centre).unsqueeze(0))) * seen.unsqueeze(1)
        return replace(self, centre=centre, solved=solved, lengths=squared_lengths(solved, means - centre), seen=seen)

    def head(self) -> SolvedHead:
        weight = self.solved * self.lengths.rsqrt().unsqueeze(1)
        return SolvedHead(weight.float(), -(weight @ self.centre).float(), self.seen)


@dataclass(frozen=True)
class Blend:
    """The Gaussian's `head`, blended with the cosine to `directions` `[C, P]` of the network's own feature."""

    head: SolvedHead
    directions: Tensor
    """Class means of unit length, times the weight of the cosine and its scale."""
    weight: float
    """Weight of the cosine."""

    @classmethod
    def of(cls, head: SolvedHead, means: Tensor, own: Tensor, samples: float) -> Blend:
        """After so many samples: class `means` `[C, M]` of all features and `own` `[C, P]` of the network's own."""
        weight, seen = cosine_weight(samples), head.seen
        directions = F.normalize(own.float(), dim=1)
        unit = margin(directions[seen] @ directions[seen].T) if weight else 0.0
        if unit < LEAST_MARGIN:
            return cls(head, directions, 0.0)
        scale = margin(head.scores(means[seen])[:, seen]) / unit
        return cls(head, directions * (weight * scale), weight)

    def scores(self, features: Tensor, own: Tensor) -> Tensor:
        """`[B, C]` from features `[B, M]` and the network's own feature `[B, P]`."""
        scores = self.head.scores(features)
        if not self.weight:
            return scores
        return (1 - self.weight) * scores + F.normalize(own.float(), dim=1) @ self.directions.T


def cosine_weight(samples: float) -> float:
    """Weight of the cosine after so many samples.

    >>> [cosine_weight(samples) for samples in (0, 20, 60, 200)]
    [1.0, 0.5, 0.1, 0.0]
    """
    return 1 / (1 + (samples / HANDFUL) ** 2) if samples < 10 * HANDFUL else 0.0


def margin(scores: Tensor) -> float:
    """How much higher a class scores its own mean than the means of others do on average, for scores `[C, C]`."""
    own, count = float(scores.diagonal().sum()), len(scores)
    return own / count - (float(scores.sum()) - own) / (count * (count - 1)) if count > 1 else 0.0


@dataclass(frozen=True)
class Overall:
    """d₀²: the squared distance of features to the `mean` of all samples, by the covariance of all, with Σ's prior.

    That covariance is Σ + UᵀU / w, where w is Σ's weight and row c of U is √n_c (μ_c - x̄). So d₀² is the distance by
    Σ⁻¹ less ‖B(x - x̄)‖², B = (wI + UΣ⁻¹Uᵀ)^(-½) UΣ⁻¹ being `between` `[C, M]`. With many classes it is factored itself.
    """

    mean: Tensor
    between: Tensor | None
    metric: Metric

    @classmethod
    def of(
        cls, gaussian: Gaussian, sums: ClassTotals, moments: Callable[[], Totals], levels: Tensor, samples: float
    ) -> Overall:
        """`moments` are computed where the covariance is factored."""
        count, seen, within = sums.counts.sum(), gaussian.seen, gaussian.metric
        mean, classes = sums.sums.sum(0) / count, int(seen.sum())
        if classes > len(mean) // MANY_CLASSES:
            totals = moments()
            freedom = float(count - classes)  # as for Σ: where no sample was, both metrics are the same
            more = overall_samples(freedom)
            around = mean.to(totals.gram)
            scatter = torch.addr(totals.gram, around, around, alpha=-float(count)).mul_(1 + more / float(count))
            metric = Metric.of(totals, scatter, levels, freedom, samples, more)
            return cls(mean.to(metric.lower), None, metric)
        roots = sums.counts[seen].sqrt().unsqueeze(1).to(within.lower)
        apart, mean = class_means(*sums)[seen] - mean, mean.to(within.lower)
        solved = roots * (gaussian.solved[seen] + within.solve((gaussian.centre - mean).unsqueeze(0)))
        spread = roots * apart.to(mean)
        lower = torch.linalg.cholesky(within.weight * torch.eye(classes).to(mean) + solved @ spread.T)
        return cls(mean, torch.linalg.solve_triangular(lower, solved, upper=False), within)

    def squares(self, features: Tensor) -> Tensor:
        """`[B, 1]` from features `[B, M]`."""
        y = features.to(self.mean) - self.mean
        squares = self.metric.squares(y)
        return squares if self.between is None else squares - (y @ self.between.T).square().sum(1, keepdim=True)


@dataclass(frozen=True)
class Familiarity:
    """How near an image is to a class, compared with how near it is to all samples.

    The value is cos a (M / d²)^¼ + 6 (d₀² - d_c²) / √(d² M) for M features.
    a is the angle between x - μ and the nearest class mean, d the length of x - μ and d_c the distance to that mean,
    by Σ⁻¹; d₀ is the distance to the mean of all samples by the covariance of all, with the same prior.
    """

    gaussian: Gaussian
    overall: Overall
    solved: Tensor
    """Σ⁻¹m of the classes seen."""
    lengths: Tensor
    """Their mᵀΣ⁻¹m."""

    @classmethod
    def of(cls, gaussian: Gaussian, overall: Overall) -> Familiarity:
        return cls(gaussian, overall, gaussian.solved[gaussian.seen], gaussian.lengths[gaussian.seen])

    def of_features(self, features: Tensor) -> Tensor:
        """`[B]` from features `[B, M]`."""
        g = self.gaussian
        x = features.to(g.centre) - g.centre
        squares, crowd = g.metric.squares(x), self.overall.squares(features)
        products = x @ self.solved.T
        nearest = (self.lengths - 2 * products).amin(1, keepdim=True)
        return familiarity_of(products * self.lengths.rsqrt(), squares, crowd, nearest, self.solved.shape[1])


def familiarity_of(scores: Tensor, squares: Tensor, crowd: Tensor, nearest: Tensor, width: int) -> Tensor:
    """`[B]` from scores of the classes seen `[B, C]`, d², d₀² and d_c² - d², each `[B, 1]`, of so many features."""
    squares = squares.clamp(min=LEAST_SQUARE)
    angle = scores.amax(1, keepdim=True) * squares.rsqrt()
    found = angle * (width / squares) ** 0.25 + NEARNESS * (crowd - squares - nearest) / (squares * width).sqrt()
    return found.squeeze(1)


def squared_lengths(solved: Tensor, apart: Tensor) -> Tensor:
    """mᵀΣ⁻¹m `[C]` from Σ⁻¹m and m `[C, M]`."""
    return (solved * apart).sum(1).clamp(min=LEAST_SQUARE)


def working_dtype(freedom: float) -> torch.dtype:
    """In what a matrix of so many degrees of freedom is factored."""
    return torch.float32 if freedom < DOUBLE else torch.float64


def overall_samples(freedom: float) -> float:
    """t: samples that the covariance of all samples counts for.

    >>> [overall_samples(freedom) for freedom in (0, 10, 90)]
    [100.0, 50.0, 10.0]
    """
    return OVERALL_SAMPLES / (1 + freedom / OVERALL_FREEDOM)


def prior_variances(totals: Totals, levels: Tensor) -> Tensor:
    """p `[M]` for features of the levels `[M]`."""
    count = totals.counts.sum().clamp(min=1)
    mean, squares = totals.sums.sum(0) / count, totals.gram.diagonal() / count
    variances = (squares - mean.square()).clamp(min=0)
    typical = variances.mean().clamp(min=NEGLIGIBLE * float(squares.mean())).clamp(min=torch.finfo(torch.float32).tiny)
    variances = (count * variances + FEW * typical) / (count + FEW)
    freedom = count - (totals.counts > 0).sum()
    exponents = levels.to(variances) * DEPTH_SAMPLES / (freedom + DEPTH_SAMPLES)
    return variances * torch.exp2(exponents * math.log2(LEVEL_GROWTH))
