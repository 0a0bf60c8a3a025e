"""Shrinkage of class means of few samples: empirical Bayes on the means of a Gaussian classifier.

In many dimensions the mean of n samples is mostly noise: by E|ẑ - z|² = p/n too long, in units in which the spread
within classes is one, p being the dimensions that count. So a class seldom seen seems far from everything. Here means
are shrunk by what is known from the other classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.solvers import NEGLIGIBLE, factor, mean_square, within_classes

LEAST_FREEDOM = 0.05
"""Least share of the degrees of freedom that remain after the parameters, for the noise."""
LEAST_SIGNAL = 0.1
"""Least share of the means' squared length that is signal, whatever the estimate: classes must differ in something."""


def shrunk_lda(
    totals: Totals, penalty: float, rounding: float = 0.0, shrink_means: bool = True
) -> tuple[Tensor, Tensor]:
    """Weights `[C, M]` and biases `[C]` of a linear discriminant analysis whose means are shrunk by their noise.

    With `shrink_means` false the means are unchanged.

    The covariance Σ within classes gets `penalty` times its mean variance added to each, and `rounding` times the mean
    square. With means m_c about that of all samples, shrunk to m̃_c, a class scores (x - μ)ᵀΣ⁻¹m̃_c - ½ m̃_cᵀΣ⁻¹m̃_c.
    """
    count = totals.counts.sum().clamp(min=1)
    means, covariance = within_classes(totals)
    centre = totals.sums.sum(0) / count
    apart = (means - centre) * (totals.counts > 0).unsqueeze(1)
    spread, largest = float(covariance.diagonal().mean()), mean_square(totals) / float(count)
    known = spread > NEGLIGIBLE * largest
    if not known:  # one sample per class, or copies: the nearest mean wins
        covariance.zero_()
    added = penalty * spread + rounding * largest if known else largest
    covariance.diagonal().add_(added)
    lower = factor(covariance, largest)
    solved = torch.cholesky_solve(apart.T, lower)
    products = apart @ solved
    mix = shrinkage(products, totals.counts, _noise(lower, added, float(count)) if known and shrink_means else 0.0)
    weight = (solved @ mix).T
    return weight, -(weight @ centre) - 0.5 * (mix * (products @ mix)).sum(0)


def _noise(lower: Tensor, added: float, count: float) -> float:
    """p: the squared length, times n, that noise alone adds to the mean of n samples in the metric of Σ⁻¹.

    Of the dimensions those count that the penalty leaves. Since Σ was fitted to the same samples, it seems too small
    where they are few.
    """
    # Of the inverse only the trace is wanted: single precision will do, and takes half the time.
    trace = float(torch.cholesky_inverse(lower.float()).diagonal().double().sum())
    dimensions = max(0.0, len(lower) - added * trace)
    return dimensions / max(LEAST_FREEDOM, 1 - dimensions / count)


def shrinkage(products: Tensor, counts: Tensor, noise: float) -> Tensor:
    """Columns `[C, C]` by which means are combined: the average of two priors about how classes differ.

    `products` `[C, C]` are those of the means with each other, `counts` `[C]` their samples, `noise` / n the squared
    length that noise adds to a mean of n samples. Without noise the means are unchanged.
    """
    if noise <= 0:
        return torch.eye(len(counts)).to(products)
    return (james_stein(products, counts, noise) + efron_morris(products, counts, noise)) / 2


def james_stein(products: Tensor, counts: Tensor, noise: float) -> Tensor:
    """James and Stein: classes differ by some length in any direction, so a mean shrinks by its own noise alone."""
    samples, lengths = counts.clamp(min=1), products.diagonal()
    seen = (counts > 0).to(products)
    classes = seen.sum().clamp(min=1)
    signal = ((lengths - noise / samples).clamp(min=0) * seen).sum() / classes
    signal = torch.maximum(signal, LEAST_SIGNAL * (lengths * seen).sum() / classes)
    return torch.diag(signal / (signal + noise / samples))


def efron_morris(products: Tensor, counts: Tensor, noise: float) -> Tensor:
    """Efron and Morris: classes differ in directions that many share, so a mean is shrunk towards where the others lie.

    Weighted by √n, all means are equally noisy: of each of their principal axes, noise has its share of the length.
    """
    root = counts.clamp(min=1).sqrt()
    lengths, axes = torch.linalg.eigh(products * root.unsqueeze(1) * root)
    signal = (1 - noise / lengths.clamp(min=torch.finfo(lengths.dtype).tiny)).clamp(min=0)
    combined: Tensor = root.unsqueeze(1) * ((axes * signal) @ axes.T) / root
    return combined
