"""Supervised contrast: members of a class are to be more like each other than like all else in the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def likeness(projections: Tensor, slices: Tensor) -> Tensor:
    """`S = Z Z^T + Z g^T`, `[N, N]`, of unit projections Z and columns g of unit features, both `[N, d]`."""
    return projections @ (projections + slices).T


def surprise(similarity: Tensor, temperature: float, without_self: bool) -> Tensor:
    """`-log softmax_j(S_ij / temperature)` of `[N, M]`; infinite for j = i where a sample is not compared to itself."""
    scaled = similarity / temperature
    if without_self:
        scaled = scaled.masked_fill(_diagonal(similarity), -torch.inf)
    return -F.log_softmax(scaled, 1)


def class_contrast(similarity: Tensor, same: Tensor, temperature: float, without_self: bool = False) -> Tensor:
    """The mean over i of the mean surprise of i's own class P_i: of j with `same[i, j]`, bool `[N, M]`.

    `without_self`: i itself is not in the softmax and adds no surprise, but P_i, which the mean is over, still has it.
    A sample that is alone in its class counts 0.
    """
    members = same.sum(1).clamp(min=1)
    if without_self:
        same = same & ~_diagonal(similarity)
    return (torch.where(same, surprise(similarity, temperature, without_self), 0).sum(1) / members).mean()


def pair_contrast(similarity: Tensor, temperature: float) -> Tensor:
    """The mean surprise of i's pair, which is N / 2 further on or back, of `[N, N]`; i itself is left out."""
    half = len(similarity) // 2
    surprises = surprise(similarity, temperature, without_self=True)
    return torch.cat([surprises.diagonal(half), surprises.diagonal(-half)]).mean()


def new_contrast(similarity: Tensor, same: Tensor, temperature: float) -> Tensor:
    """OCM's loss on what has just come: that of the pair, and twice that of the class, both without self."""
    pairs = pair_contrast(similarity, temperature)
    return pairs + 2 * class_contrast(similarity, same, temperature, without_self=True)


def same_class(rows: Tensor, others: Tensor | None = None) -> Tensor:
    """Whether two are of one class: bool `[N, M]` of rows `[N]` and `[M]`."""
    return rows.unsqueeze(1) == (rows if others is None else others)


def _diagonal(similarity: Tensor) -> Tensor:
    return torch.eye(len(similarity), dtype=torch.bool, device=similarity.device)
