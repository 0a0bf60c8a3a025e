"""Linear classifiers in closed form, as pure functions of second moments.

G is XᵀX `[M, M]`, S the class sums `[C, M]`, n the counts `[C]`, N their sum; everything is float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.closed_form.moments import NOT_LEARNT, Totals, weights_without

STRENGTHS = tuple(10 ** (third / 3) for third in range(-24, 25))
"""Ridge strengths to choose from, in units of the mean of G's diagonal."""
UNCHOSEN = len(STRENGTHS) // 2
"""Where the search for one begins, and stays while nothing is held out for validation."""
NEGLIGIBLE = 1e-6
"""Share of the second moment below which a spread within classes is rounding, or copies of one image."""


@dataclass(frozen=True)
class SolvedHead:
    """`weight` `[C, M]` and `bias` `[C]`; classes that are not `seen` `[C]` never win."""

    weight: Tensor
    bias: Tensor | None
    seen: Tensor

    def scores(self, features: Tensor) -> Tensor:
        """`[B, C]` from features `[B, M]`."""
        scores = F.linear(features.to(self.weight), self.weight, self.bias)
        return scores.masked_fill(~self.seen, -torch.inf)


def class_means(sums: Tensor, counts: Tensor) -> Tensor:
    """`[C, M]`; a class without samples has a mean of zero."""
    return sums / counts.clamp(min=1).unsqueeze(1)


def ridge(totals: Totals, strength: float) -> Tensor:
    """Weights `[C, M]` of least squares to one-hot targets with a penalty on their squares: S (G + strength I)⁻¹."""
    matrix = totals.gram.clone()
    matrix.diagonal().add_(strength)
    return torch.cholesky_solve(totals.sums.T, factor(matrix)).T


def mean_square(totals: Totals) -> float:
    """The mean of G's diagonal, in units of which ridge strengths are compared."""
    return max(float(totals.gram.diagonal().mean()), torch.finfo(torch.float64).tiny)


def held_out_error(weight: Tensor, held: Totals) -> float:
    """Mean squared error of scores X Wᵀ against one-hot targets: (N - 2 tr(W Sᵀ) + tr(W G Wᵀ)) / N."""
    count = held.counts.sum()
    return float((count - 2 * (weight * held.sums).sum() + (weight @ held.gram * weight).sum()) / count)


def choose_ridge(fit: Totals, held: Totals) -> float:
    """The ridge strength whose weights, solved from `fit`, have the least error on `held`.

    The error has one valley in practice, so `STRENGTHS` is walked down from its middle, first by factors of ten, then
    by their third roots: six to ten solves instead of one for each.
    """
    unit, best = mean_square(fit), UNCHOSEN

    @cache
    def error(place: int) -> float:
        return held_out_error(ridge(fit, STRENGTHS[place] * unit), held)

    for stride in (3, 1) if bool(held.counts.any()) else ():
        while True:
            beside = [place for place in (best - stride, best + stride) if 0 <= place < len(STRENGTHS)]
            lower = min(beside, key=error)
            if not error(lower) < error(best):  # errors may be NaN, which would be walked for ever
                break
            best = lower
    return STRENGTHS[best] * unit


def within_classes(totals: Totals) -> tuple[Tensor, Tensor]:
    """Class means `[C, M]` and the covariance about them `[M, M]`, (G - Σ_c n_c μ_c μ_cᵀ) / N."""
    means = class_means(totals.sums, totals.counts)
    # In place where possible: these matrices may fill the device's memory.
    scatter = torch.addmm(totals.gram, means.T, totals.counts.unsqueeze(1) * means, alpha=-1)
    return means, scatter.div_(totals.counts.sum().clamp(min=1))


def lda(totals: Totals, shrinkage: float | None = None, priors: bool = False) -> tuple[Tensor, Tensor]:
    """Weights `[C, M]` and biases `[C]` of linear discriminant analysis with one covariance for all classes.

    With class means μ: w_c = Σ⁻¹μ_c and b_c = -½ μ_cᵀΣ⁻¹μ_c, plus log(n_c / N) with `priors`. Σ is the
    covariance within classes, shrunk by a fixed share or, without one, by OAS.
    """
    count = totals.counts.sum().clamp(min=1)
    means, covariance = within_classes(totals)
    spread, largest = covariance.diagonal().mean(), mean_square(totals) / float(count)
    if float(spread) <= NEGLIGIBLE * largest:  # one sample per class: nearest class mean
        covariance = largest * torch.eye(len(covariance), device=covariance.device, dtype=covariance.dtype)
    else:
        share = oas_share(covariance, float(count)) if shrinkage is None else shrinkage
        covariance.mul_(1 - share)
        covariance.diagonal().add_(share * spread)
    weight = torch.cholesky_solve(means.T, factor(covariance)).T
    bias = -0.5 * (means * weight).sum(1)
    return weight, bias + (totals.counts / count).log() if priors else bias


def oas_share(covariance: Tensor, count: float) -> float:
    """How far to shrink a covariance `[M, M]` of `count` samples towards its mean variance times I (Chen et al. 2010).

    With a the mean of its squared entries and m its mean variance: min(1, (a + m²) / ((count + 1) (a - m²/M))).
    """
    a, m = float(covariance.square().mean()), float(covariance.diagonal().mean())
    excess = (count + 1) * (a - m * m / len(covariance))
    return min(1.0, (a + m * m) / excess) if excess > 0 else 1.0


def recursive_least_squares(inverse: Tensor, weight: Tensor, features: Tensor, targets: Tensor) -> None:
    """Updates the ridge solution by one chunk, in place: `inverse` R = (G + λI)⁻¹ `[M, M]`, `weight` `[C, M]`.

    With features A `[B, M]` and targets Y `[B, C]`: R ← R - RAᵀ(I + ARAᵀ)⁻¹AR, then W ← W + (Y - AWᵀ)ᵀAR.
    """
    mapped = features @ inverse
    small = mapped @ features.T
    small.diagonal().add_(1.0)
    lower = factor(small)
    # The change of R as VᵀV, which stays symmetric where RAᵀ(...)⁻¹AR would drift.
    change = torch.linalg.solve_triangular(lower, mapped, upper=False)
    error = targets - features @ weight.T
    weight.addmm_(error.T, torch.cholesky_solve(mapped, lower))
    inverse.addmm_(change.T, change, alpha=-1)


def forget_least_squares(inverse: Tensor, weight: Tensor, features: Tensor, targets: Tensor) -> None:
    """Undoes `recursive_least_squares` on samples A `[B, M]` with targets Y `[B, C]`, in place.

    R ← R + RAᵀKAR with K = (I - ARAᵀ)⁻¹, then W ← W - (Y - AWᵀ)ᵀKAR. K exists for samples that were learnt.
    """
    mapped = features @ inverse
    small = -(mapped @ features.T)
    small.diagonal().add_(1.0)
    lower, failed = torch.linalg.cholesky_ex((small + small.T) / 2)
    if bool(failed):
        raise ValueError(NOT_LEARNT)
    change = torch.linalg.solve_triangular(lower, mapped, upper=False)
    error = targets - features @ weight.T
    weight.addmm_(error.T, torch.cholesky_solve(mapped, lower), alpha=-1)
    inverse.addmm_(change.T, change)


def take_out_of_inverse(inverse: Tensor, weight: Tensor, counts: Tensor, row: int, ridge: float) -> None:
    """Removes a class where (XᵀX + ridge I)⁻¹ `[M, M]` and the ridge solution `[C, M]` are stored, in place."""
    lower = torch.linalg.cholesky(inverse)
    sums = torch.cholesky_solve(weight.T, lower).T
    share, weights = weights_without(counts, row)
    identity = torch.eye(len(inverse)).to(inverse)
    gram = torch.cholesky_inverse(lower) - ridge * identity
    changed = share * gram + sums.T @ (weights.unsqueeze(1) * sums) + ridge * identity
    solved = torch.cholesky_inverse(torch.linalg.cholesky((changed + changed.T) / 2))
    inverse.copy_((solved + solved.T) / 2)
    weight.copy_(sums @ inverse)


def factor(matrix: Tensor, largest: float = 0.0) -> Tensor:
    """The lower Cholesky factor of a symmetric matrix, whose diagonal is raised where rounding took it below zero.

    `largest` is what was subtracted from to get the diagonal, where that may be little more than rounding.
    """
    unit = float(matrix.diagonal().mean())
    lifts = [share * unit for share in (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)]
    lifts += [share * largest for share in (1e-8, 1e-6, 1e-4, 1e-2) if share * largest > max(lifts)]
    for lift in lifts:
        lifted = matrix + lift * torch.eye(len(matrix), device=matrix.device) if lift else matrix
        found: Tensor
        found, failed = torch.linalg.cholesky_ex(lifted)
        if not bool(failed):
            return found
    raise ValueError(
        "the statistics are not those of finite features, so no classifier can be solved from them: look for images "
        "on which the backbone returns NaN or infinity"
    )


def sums_of_ridge(inverse: Tensor, weight: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """XᵀX `[M, M]` and class sums `[C, M]`, of which (XᵀX + λI)⁻¹ `[M, M]` and the solution `[C, M]` are stored."""
    lower = torch.linalg.cholesky((inverse + inverse.T) / 2)
    gram = torch.cholesky_inverse(lower)
    sums = torch.cholesky_solve(weight.T, lower).T
    gram.diagonal().sub_(strength)
    return gram, sums


def ridge_from_sums(gram: Tensor, sums: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Undoes `sums_of_ridge`: (XᵀX + λI)⁻¹ and the solution."""
    matrix = (gram + gram.T) / 2
    matrix.diagonal().add_(strength)
    inverse = torch.cholesky_inverse(factor(matrix))
    inverse = (inverse + inverse.T) / 2
    return inverse, sums @ inverse
