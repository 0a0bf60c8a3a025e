"""Shrinkage chosen from second moments alone: generalised cross-validation needs no sample again."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.solvers import factor

STRENGTHS = tuple(10 ** (half / 2) for half in range(-10, 9))
"""Penalties to choose from, in units of the features' mean variance."""
FIRST = STRENGTHS.index(1.0)
"""Where the search begins: few samples want much."""
NO_FREEDOM = 1e-3
"""Share of the degrees of freedom that remain after the parameters, below which rounding decides."""


def choose_strength(totals: Totals, start: int = FIRST, intercept: bool = True, top: int = len(STRENGTHS) - 1) -> int:
    """The place in `STRENGTHS` with the least error, walking downhill from `start`: three to five solves as a rule.

    No place above `top` is tried. Without an intercept nothing is centred, and strengths are in units of the features'
    mean square.
    """
    scatter, sums, targets, count = _centred(totals) if intercept else _plain(totals)
    unit = float(scatter.diagonal().mean())
    if unit <= 0:  # copies of one image
        return start

    @cache
    def error(place: int) -> float:
        return cross_validated(scatter, sums, targets, count, STRENGTHS[place] * unit, intercept)

    best = start
    while best < top and not math.isfinite(error(best)):  # too weak a penalty to be judged
        best += 1
    while True:
        lower = min((place for place in (best - 1, best + 1) if 0 <= place <= top), key=error)
        if error(lower) >= error(best):
            return best
        best = lower


def cross_validated(
    scatter: Tensor, sums: Tensor, targets: float, count: float, penalty: float, intercept: bool = True
) -> float:
    """How far ridge regression to one-hot targets is off on samples that it has not seen, as a sum of squares.

    With X and Y centred, G = XᵀX `[M, M]`, S = YᵀX `[C, M]` and t = tr YᵀY, W = S (G + λI)⁻¹ leaves
    t - tr(W Sᵀ) - λ |W|² on its own samples. A sample left out is further off by 1 / (1 - p/N), N samples and
    p = 1 + tr(G (G + λI)⁻¹) parameters in effect; without an intercept nothing is centred, and p is less by one.
    """
    matrix = scatter.clone()
    matrix.diagonal().add_(penalty)
    try:
        lower = factor(matrix)
    except ValueError:  # copies, of whose scatter rounding has left nothing: so weak a penalty cannot be judged
        return math.inf
    weight = torch.cholesky_solve(sums.T, lower)
    left = targets - float((weight * sums.T).sum()) - penalty * float(weight.square().sum())
    # Of the inverse only the trace is wanted: single precision will do, and takes half the time.
    trace = float(torch.cholesky_inverse(lower.float()).diagonal().double().sum())
    parameters = intercept + len(scatter) - penalty * trace
    freedom = 1 - parameters / count
    return left / freedom**2 if freedom > NO_FREEDOM else math.inf


def _centred(totals: Totals) -> tuple[Tensor, Tensor, float, float]:
    """Scatter and class sums about the mean of all samples, the scatter's trace of one-hot targets, and the count."""
    count = totals.counts.sum().clamp(min=1e-9)
    mean = totals.sums.sum(0) / count
    scatter = torch.addr(totals.gram, mean, mean, alpha=-float(count))
    sums = totals.sums - totals.counts.unsqueeze(1) * mean
    targets = float(count - totals.counts.square().sum() / count)
    return scatter, sums, targets, float(count)


def _plain(totals: Totals) -> tuple[Tensor, Tensor, float, float]:
    """The same about zero."""
    count = float(totals.counts.sum())
    return totals.gram, totals.sums, count, max(count, 1e-9)
