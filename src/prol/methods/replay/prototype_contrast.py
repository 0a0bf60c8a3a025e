"""Means of classes in a batch, contrasted between two views of it; and pairs of classes that lie close."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LEAST_DISTANCE = 1e-3
"""Means that coincide would make 1 / distance infinite."""
UNKNOWN_DISTANCE = 2.0
"""As far apart as unit vectors can be: what is not known is not close."""


def class_means(projections: Tensor, rows: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Unit means `[C, d]` of the unit projections `[N, d]` of each class, and which classes are there, bool `[C]`."""
    member = rows == torch.arange(classes, device=rows.device).unsqueeze(1)
    counts = member.sum(1, keepdim=True)
    means = member.to(projections) @ projections / counts.clamp(min=1)
    return F.normalize(means), counts.squeeze(1) > 0


def prototype_contrast(plain: Tensor, viewed: Tensor, there: Tensor, temperature: float) -> Tensor:
    """InfoNCE over the means of K classes in two views, each `[C, d]`; only those `there`, bool `[C]`, take part.

    A mean is to be closest to that of its class in the other view; it is not compared with itself. The mean over 2 K.
    """
    means, taking_part = torch.cat([plain, viewed]), torch.cat([there, there])
    itself = torch.eye(len(means), dtype=torch.bool, device=means.device)
    similarity = (means @ means.T / temperature).masked_fill(itself | ~taking_part, -torch.inf)
    # Rows without any other mean would be NaN: they are of classes that take no part.
    similarity = torch.where(taking_part.unsqueeze(1), similarity, 0)
    chances = F.log_softmax(similarity, 1)
    positive = torch.cat([chances.diagonal(len(plain)), chances.diagonal(-len(plain))])
    return -torch.where(taking_part, positive, 0).sum() / taking_part.sum().clamp(min=1)


def pair_chances(means: Tensor, there: Tensor) -> Tensor:
    """How often two different classes are taken as a pair, `[C, C]`: softmax over pairs of 1 / distance.

    Args:
        means: of each class, `[C, d]`; zero where none is known.
        there: the classes to choose from, bool `[C]`, two at least.
    """
    means = means.double()
    known = (means != 0).any(1)
    # From differences and not from products: of means that are nearly the same little would be left.
    distances = torch.cdist(means, means, compute_mode="donot_use_mm_for_euclid_dist")
    distances = torch.where(known.unsqueeze(1) & known, distances, UNKNOWN_DISTANCE).clamp(min=LEAST_DISTANCE)
    itself = torch.eye(len(means), dtype=torch.bool, device=means.device)
    allowed = there.unsqueeze(1) & there & ~itself
    closeness = torch.where(allowed, 1 / distances, -torch.inf)
    return closeness.flatten().softmax(0).view_as(closeness)


def chosen_pairs(chances: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Classes `[n]` and `[n]` of pairs with chances `[C, C]`, from uniform numbers `[n, 2]` from 0 to 1."""
    first = _chosen(chances.sum(1).expand(len(numbers), -1), numbers[:, 0])
    return first, _chosen(chances[first], numbers[:, 1])


def _chosen(chances: Tensor, numbers: Tensor) -> Tensor:
    """A place `[n]` in each row of `[n, C]`, whose sums need not be 1, from uniform numbers `[n]`."""
    # As a product: sums taken step by step have no fixed order on a GPU.
    ahead = chances @ torch.ones(chances.shape[1], chances.shape[1], dtype=chances.dtype, device=chances.device).triu()
    passed = ahead <= (numbers * ahead[:, -1]).unsqueeze(1)
    return passed.sum(1).clamp(max=chances.shape[1] - 1)
