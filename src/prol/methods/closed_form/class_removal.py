"""Removal of a class from second moments that all classes share, as far as its own sum and count determine its part."""

from __future__ import annotations

import torch
from torch import Tensor

NOT_LEARNT = "these images were not learnt: what would be left of the sums is not that of any images"
SPREAD = "the matrix that all classes share still holds how its images spread about their mean, mixed with all others"
TAKEN = "its mean, and the expected share of its spread, in the matrix that all classes share"


def spread_share(counts: Tensor, row: int) -> float:
    """The share of the spread within classes that is expected to be that of one of them, from counts `[C]` alone.

    n samples have n - 1 degrees of freedom about their own mean: none where a class has one sample, all where it is
    the only one with more.
    """
    free = (counts.double() - 1).clamp(min=0)
    return float(free[row] / free.sum()) if float(free.sum()) > 0 else 0.0


def weights_without(counts: Tensor, row: int) -> tuple[float, Tensor]:
    """The change of XᵀX to (1 - f) XᵀX + Sᵀ diag(w) S: the first factor, and w `[C]`.

    With M = Σ s sᵀ / n over all classes, XᵀX - M is the spread within classes, of which the share f goes; of M the
    part of the class in `row` goes. What is left is positive semidefinite, and nothing where no other class has images.
    """
    share = spread_share(counts, row)
    weights = share / counts.double().clamp(min=1)
    weights[row] = -(1 - share) / counts[row].double().clamp(min=1)
    return 1 - share, weights


def take_out_of_moments(tensors: dict[str, Tensor], prefix: str, row: int) -> int:
    """Removes a class from the state of `Moments` under a prefix, but for its row; returns how many samples it had."""
    sums, counts = tensors[f"{prefix}sums"].double(), tensors[f"{prefix}counts"]
    factor, weights = weights_without(counts, row)
    weighted = weights.unsqueeze(1) * sums
    for name in [name for name in tensors if name.startswith(f"{prefix}gram.")]:
        height, end = tensors[name].shape
        block = factor * tensors[name].double() + weighted[:, end - height : end].T @ sums[:, :end]
        tensors[name] = block.to(tensors[name].dtype)
    return round(float(counts[row]))


def take_out_of_inverse(inverse: Tensor, weight: Tensor, counts: Tensor, row: int, ridge: float) -> None:
    """The same where (XᵀX + ridge I)⁻¹ `[M, M]` and the ridge solution `[C, M]` are stored, in place."""
    lower = torch.linalg.cholesky(inverse)
    sums = torch.cholesky_solve(weight.T, lower).T
    factor, weights = weights_without(counts, row)
    identity = torch.eye(len(inverse)).to(inverse)
    gram = torch.cholesky_inverse(lower) - ridge * identity
    changed = factor * gram + sums.T @ (weights.unsqueeze(1) * sums) + ridge * identity
    solved = torch.cholesky_inverse(torch.linalg.cholesky((changed + changed.T) / 2))
    inverse.copy_((solved + solved.T) / 2)
    weight.copy_(sums @ inverse)


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


def require_left_over(before: Tensor, features: Tensor) -> None:
    """Refuses features `[B, M]` whose squares exceed those summed up so far, `before` `[M]`, by more than rounding."""
    squares = features.double().square().sum(0)
    if bool((squares > before.double() * (1 + 1e-4) + 1e-6 * before.double().mean()).any()):
        raise ValueError(NOT_LEARNT)
