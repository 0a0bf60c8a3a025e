"""What PROL+ predicts for images that it has just learnt as if it had not learnt them: leave-one-out, in closed form.

x is one of n images of a class c, N are all samples, m_k the means of C classes less their mean μ, and d the difference
of x from the mean of its class. Without x that mean moves by -d / (n - 1), μ by -d / ((n - 1) C), and the scatter loses
n / (n - 1) ddᵀ within classes. What all samples have in common, t T / N, loses t / (N - 1) eeᵀ with e = x - x̄, taken as
ddᵀ here: they are alike in the directions that are x's alone. So the inverse follows by the formula of Sherman and
Morrison, and all scores from inner products of d and of the m_k under Σ⁻¹. Prior variances stay as they are.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.solvers import class_means
from prol.methods.prol_plus.gaussian import LEAST_SQUARE, Familiarity, overall_samples

LEAST_LEFT = 1e-4
"""Least share of an image's own direction that others leave to it: below it, it is rounding."""


def left_out(familiarity: Familiarity, totals: Totals, features: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Scores `[B, C]` and familiarity `[B]` of features `[B, M]` of the class rows `[B]`, which `totals` include.

    What the only image of a class has is meaningless: without it, there is no such class. Nothing learnt scores -inf.
    """
    g, seen = familiarity.gaussian, familiarity.gaussian.seen
    own = (seen.cumsum(0) - 1)[rows].unsqueeze(1)
    counts = totals.counts[seen].to(g.centre)
    total, classes = float(counts.sum()), len(counts)
    more = (counts[own] - 1).clamp(min=1)  # [B, 1], as all numbers of an image below
    means = class_means(totals.sums, totals.counts)[seen].to(g.centre) - g.centre
    x = features.to(g.centre) - g.centre
    d = x - means[own[:, 0]]

    across, delta = d @ familiarity.solved.T, (g.metric.solve(d) * d).sum(1, keepdim=True)
    lengths, mine = familiarity.lengths, across.gather(1, own)
    taken = ((more + 1) / more + overall_samples(total - classes) / (total - 1)) / g.metric.weight
    gain, rest = taken / (1 - taken * delta).clamp(min=LEAST_LEFT), 1 - 1 / g.metric.weight

    # As seen from where μ is without x, x is m_c + αd and the mean of class k is m_k + β_k d.
    member = F.one_hot(own[:, 0], classes).bool()
    alpha = 1 + 1 / (more * classes)
    beta = 1 / (more * classes) - member / more
    x_d, m_d = mine + alpha * delta, across + beta * delta
    products = means[own[:, 0]] @ familiarity.solved.T + beta * mine + alpha * m_d
    products = rest * (products + gain * x_d * m_d)
    squares = rest * (lengths[own] + alpha * (mine + x_d) + gain * x_d.square())
    means_squares = rest * (lengths + beta * (across + m_d) + gain * m_d.square()).clamp(min=LEAST_SQUARE)

    # The distance to the mean of all samples by their covariance, both without x.
    crowd = familiarity.overall.squares(features)
    share = total / (total - 1) * (1 + overall_samples(total - classes) / total) / g.metric.weight
    crowd = rest * (total / (total - 1)) ** 2 * crowd / (1 - share * crowd).clamp(min=LEAST_LEFT)

    found = products * means_squares.rsqrt()
    nearest = (means_squares - 2 * products).amin(1, keepdim=True)
    scores = x.new_full((len(x), len(seen)), -torch.inf)
    scores[:, seen] = found
    return scores, familiarity.value(found, squares, crowd, nearest).squeeze(1)
