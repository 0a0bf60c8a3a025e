"""What PROL+ predicts for images that it has learnt as if it had not learnt them: leave-one-out, in closed form.

x is one of n images of a class c, N are all samples, m_k the means of C classes less their mean μ, and d the difference
of x from the mean of its class. Without x that mean moves by -d / (n - 1), μ by -d / ((n - 1) C), and the scatter loses
n / (n - 1) ddᵀ within classes. What all samples have in common, t T / N, loses t / (N - 1) eeᵀ with e = x - x̄, taken as
ddᵀ here: they are alike in the directions that are x's alone. So the inverse follows by the formula of Sherman and
Morrison, and all scores from inner products of d and of the m_k under Σ⁻¹. Prior variances stay as they are.

Of d these are all that matters, so images need not be there: `drawn_left_out` draws d from the Gaussian itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.closed_form.moments import ClassTotals
from prol.methods.closed_form.solvers import class_means
from prol.methods.prol_plus.gaussian import (
    LEAST_SQUARE,
    Familiarity,
    Gaussian,
    familiarity_of,
    overall_samples,
)

LEAST_LEFT = 1e-4
"""Least share of an image's own direction that others leave to it: below it, it is rounding."""
DRAWN = 2000
"""Images that are drawn from the Gaussian."""
DRAWN_CLASSES = 256
"""Of more classes, so many at equal distances take part."""
PROBES = 8
"""Random vectors that the trace of Σ⁻¹ diag p is estimated by."""


@dataclass(frozen=True)
class Means:
    """The C classes that take part: `apart` m `[C, M]`, `solved` Σ⁻¹m `[C, M]`, `lengths` mᵀΣ⁻¹m `[C]`, `counts` `[C]`.

    There are `total` samples of `classes` classes, and Σ counts as `weight` samples.
    """

    apart: Tensor
    solved: Tensor
    lengths: Tensor
    counts: Tensor
    total: float
    classes: int
    weight: float

    @classmethod
    def of(cls, gaussian: Gaussian, sums: ClassTotals, most: int | None = None) -> Means:
        rows = gaussian.seen.nonzero().flatten()
        total, classes = float(sums.counts.sum()), len(rows)
        if most is not None and classes > most:
            rows = rows[torch.linspace(0, classes - 1, most).long().to(rows.device)]
        like = gaussian.centre
        apart = class_means(sums.sums[rows], sums.counts[rows]).to(like) - like
        counts, solved, lengths = sums.counts[rows].to(like), gaussian.solved[rows], gaussian.lengths[rows]
        return cls(apart, solved, lengths, counts, total, classes, gaussian.metric.weight)

    @property
    def common(self) -> float:
        """τ: what the scatter of all samples is multiplied by in Σ."""
        return overall_samples(self.total - self.classes) / self.total

    def without(self, own: Tensor, between: Tensor, across: Tensor, delta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """For images of classes `own` `[B, 1]`, each without itself, from mᵀΣ⁻¹m_k `[B, C]`, m being its class mean,
        dᵀΣ⁻¹m_k `[B, C]` and dᵀΣ⁻¹d `[B, 1]`:

        the products (x - μ)ᵀΣ⁻¹m_k `[B, C]`, the squares (x - μ)ᵀΣ⁻¹(x - μ) `[B, 1]` and the lengths `[B, C]`.
        """
        count, more, mine = len(self.counts), (self.counts[own] - 1).clamp(min=1), across.gather(1, own)
        taken = ((more + 1) / more + self.common * self.total / (self.total - 1)) / self.weight
        gain, rest = taken / (1 - taken * delta).clamp(min=LEAST_LEFT), 1 - 1 / self.weight
        # As seen from where μ is without x, x is m_c + αd and the mean of class k is m_k + β_k d.
        member = F.one_hot(own[:, 0], count).bool()
        alpha = 1 + 1 / (more * count)
        beta = 1 / (more * count) - member / more
        x_d, m_d = mine + alpha * delta, across + beta * delta
        products = between + beta * mine + alpha * m_d
        products = rest * (products + gain * x_d * m_d)
        squares = rest * (self.lengths[own] + alpha * (mine + x_d) + gain * x_d.square())
        lengths = rest * (self.lengths + beta * (across + m_d) + gain * m_d.square()).clamp(min=LEAST_SQUARE)
        return products, squares, lengths

    def crowd(self, own: Tensor, between: Tensor, across: Tensor, delta: Tensor) -> Tensor:
        """d₀² of the same images, before they are left out, from mᵀΣ⁻¹m_k `[C, C]`; x̄ is that of these classes."""
        share, scale = self.counts / self.counts.sum(), self.classes / len(self.counts)
        y = between[own[:, 0]] - share @ between + across  # (x - x̄)ᵀΣ⁻¹m_k, then the same with m_k - x̄
        squares = delta + (across.gather(1, own) - (across @ share).unsqueeze(1))
        y = y - (y @ share).unsqueeze(1)
        squares = squares + y.gather(1, own)
        roots = (scale * self.counts).sqrt()
        apart = between - share @ between
        spread = roots * (apart - (apart @ share).unsqueeze(1)) * roots.unsqueeze(1)
        inner = spread.double() + self.weight * torch.eye(len(share)).to(spread.device)
        y = y * roots
        less: Tensor = torch.linalg.solve(inner, y.T.double()).T.to(y) * y
        return squares - less.sum(1, keepdim=True)

    def crowd_without(self, crowd: Tensor) -> Tensor:
        """d₀² of images without themselves, `[B, 1]`."""
        less = self.total / (self.total - 1)
        share = less * (1 + self.common) / self.weight
        return (1 - 1 / self.weight) * less**2 * crowd / (1 - share * crowd).clamp(min=LEAST_LEFT)


def left_out(familiarity: Familiarity, sums: ClassTotals, features: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Scores `[B, C]` and familiarity `[B]` of features `[B, M]` of the class rows `[B]`, which `sums` include.

    What the only image of a class has is meaningless: without it, there is no such class. Nothing learnt scores -inf.
    """
    g, seen = familiarity.gaussian, familiarity.gaussian.seen
    means = Means.of(g, sums)
    own = (seen.cumsum(0) - 1)[rows].unsqueeze(1)
    mean = means.apart[own[:, 0]]
    d = features.to(g.centre) - g.centre - mean
    products, squares, lengths = means.without(own, mean @ means.solved.T, d @ means.solved.T, g.metric.squares(d))

    crowd = means.crowd_without(familiarity.overall.squares(features))
    found = products * lengths.rsqrt()
    scores = d.new_full((len(d), len(seen)), -torch.inf)
    scores[:, seen] = found
    nearest = (lengths - 2 * products).amin(1, keepdim=True)
    return scores, familiarity_of(found, squares, crowd, nearest, d.shape[1])


class Drawn(NamedTuple):
    """Scores `[B, C]` and familiarity `[B]` of images that were drawn from the class rows `[B]`."""

    scores: Tensor
    familiarity: Tensor
    rows: Tensor


def drawn_left_out(gaussian: Gaussian, sums: ClassTotals) -> Drawn:
    """Images drawn from each class, as if they had been learnt and left out.

    Of d, dᵀΣ⁻¹m_k has the covariance WSWᵀ / f among the C classes, W being Σ⁻¹m, and dᵀΣ⁻¹d the mean tr(Σ⁻¹S) / f.
    Both follow from Σ, since Σ times its weight w is (1 + τ) S + k diag p + τ B, B being the scatter of class means.
    """
    means, metric = Means.of(gaussian, sums, DRAWN_CLASSES), gaussian.metric
    count, freedom, width = len(means.counts), means.total - means.classes, means.apart.shape[1]
    between = means.apart @ means.solved.T  # [C, C], as all below
    around = (sums.sums.sum(0) / means.total).to(means.apart) - gaussian.centre
    roots = means.counts.sqrt().unsqueeze(1)
    spread, scale = roots * (means.apart - around), means.classes / count  # what the classes that take part stand for
    moved = spread @ means.solved.T
    prior = means.solved * metric.deviation
    within = means.weight * between - prior @ prior.T - means.common * scale * moved.T @ moved
    within = within.double().cpu() / (freedom * (1 + means.common))

    random = torch.Generator().manual_seed(0)
    signs = (torch.randint(0, 2, (PROBES, width), generator=random) * 2 - 1).to(metric.deviation)
    probes = signs * metric.deviation
    trace = means.weight * width - float(metric.squares(probes).sum()) / PROBES
    trace -= means.common * scale * float((roots * (means.solved - metric.solve(around.unsqueeze(0))) * spread).sum())
    delta = trace / (freedom * (1 + means.common))

    each = max(1, DRAWN // count)
    own = torch.arange(count).repeat_interleave(each).unsqueeze(1)
    values, vectors = torch.linalg.eigh((within + within.T) / 2)
    across = torch.randn(len(own), count, generator=random, dtype=torch.float64)
    across = across @ (vectors * values.clamp(min=0).sqrt()).T
    own = own.to(between.device)
    more = (means.counts[own] - 1).clamp(min=1)
    left = more / (more + 1)  # x is a part of its class's mean
    across, squared = across.to(between) * left.sqrt(), delta * left
    products, squares, lengths = means.without(own, between[own[:, 0]], across, squared)
    crowd, nearest = means.crowd(own, between, across, squared), (lengths - 2 * products).amin(1, keepdim=True)
    scores = products * lengths.rsqrt()
    familiarity = familiarity_of(scores, squares, means.crowd_without(crowd), nearest, width)
    return Drawn(scores, familiarity, own[:, 0])
