"""A strength of shrinkage chosen from second moments alone: generalised cross-validation needs no sample again."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from prol.parts.moments import Totals
from prol.parts.solvers import factor

STRENGTHS = tuple(10 ** (half / 2) for half in range(-10, 5))
"""Penalties to choose from, in units of the features' mean variance."""
FIRST = STRENGTHS.index(1.0)
"""Where the search begins: few samples want much."""
PROBES = 32
"""Random vectors by which a trace is estimated, instead of an inverse."""


def choose_strength(totals: Totals) -> int:
    """The place in `STRENGTHS` with the least error, walking from `FIRST`, first by tens, then by their roots.

    It never begins at the last choice: where features outnumber samples there is a second valley at tiny penalties,
    in which rounding decides, and from which no walk leads out once there are more samples.
    """
    scatter, sums, targets, count = _centred(totals)
    unit = float(scatter.diagonal().mean())
    if unit <= 0:  # copies of one image
        return FIRST

    @cache
    def error(place: int) -> float:
        return cross_validated(scatter, sums, targets, count, STRENGTHS[place] * unit)

    best = FIRST
    for stride in (2, 1):
        while True:
            beside = [place for place in (best - stride, best + stride) if 0 <= place < len(STRENGTHS)]
            lower = min(beside, key=error)
            if error(lower) >= error(best):
                break
            best = lower
    return best


def cross_validated(scatter: Tensor, sums: Tensor, targets: float, count: float, penalty: float) -> float:
    """How far ridge regression to one-hot targets is off on samples that it has not seen, as a sum of squares.

    With X and Y centred, G = XᵀX `[M, M]`, S = YᵀX `[C, M]` and t = tr YᵀY, W = S (G + λI)⁻¹ leaves
    t - tr(W Sᵀ) - λ |W|² on its own samples. A sample left out is further off by 1 / (1 - p/N), N samples and
    p = 1 + tr(G (G + λI)⁻¹) parameters in effect.
    """
    matrix = scatter.clone()
    matrix.diagonal().add_(penalty)
    lower = factor(matrix)
    random = torch.Generator().manual_seed(0)  # the same for every penalty, so that errors compare
    probes = torch.randint(2, (len(scatter), PROBES), generator=random).to(scatter) * 2 - 1
    solved = torch.cholesky_solve(torch.cat([sums.T, probes], dim=1), lower)
    weight, inverse = solved[:, : len(sums)], solved[:, len(sums) :]
    left = targets - float((weight * sums.T).sum()) - penalty * float(weight.square().sum())
    parameters = 1 + len(scatter) - penalty * float((inverse * probes).sum()) / PROBES
    freedom = 1 - parameters / count
    return left / freedom**2 if freedom > NO_FREEDOM else float("inf")


NO_FREEDOM = 1e-3
"""Share of the samples left over by the parameters, below which rounding decides."""


def _centred(totals: Totals) -> tuple[Tensor, Tensor, float, float]:
    """Scatter and class sums about the mean of all samples, the scatter's trace of one-hot targets, and the count."""
    count = totals.counts.sum().clamp(min=1e-9)
    mean = totals.sums.sum(0) / count
    scatter = torch.addr(totals.gram, mean, mean, alpha=-float(count))
    sums = totals.sums - totals.counts.unsqueeze(1) * mean
    targets = float(count - totals.counts.square().sum() / count)
    return scatter, sums, targets, float(count)
