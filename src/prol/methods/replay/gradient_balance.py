"""GSA's weights of classes: how much each was pulled up against how much it was pushed down."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

COUNT, OWN, OTHERS = 0, 1, 2
"""Columns of what is summed for a class: its samples, its probability on them, and on samples of other classes."""


def probability_sums(logits: Tensor, rows: Tensor) -> Tensor:
    """`[C, 3]` of a batch of logits `[B, C]` and class rows `[B]`, in float64: long sums of small numbers."""
    p = logits.detach().double().softmax(1)
    own = rows.unsqueeze(1) == torch.arange(logits.shape[1], device=rows.device)
    return torch.stack([own.double().sum(0), torch.where(own, p, 0).sum(0), torch.where(~own, p, 0).sum(0)], 1)


def class_weights(sums: Tensor) -> Tensor:
    """2 / (1 + exp(1 - a)) `[C]` from sums `[C, 3]`, a being the mass of gradient upwards over that downwards.

    A class that no sample has pushed down yet has a = 1 and so weight 1.
    """
    pushed = sums[:, OTHERS] > 0
    ratio = (sums[:, COUNT] - sums[:, OWN]) / torch.where(pushed, sums[:, OTHERS], 1)
    return 2 * torch.sigmoid(torch.where(pushed, ratio, 1) - 1)


def weighted_cross_entropy(logits: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """The mean over `[B, C]` of each sample's cross entropy times the weight `[C]` of its class."""
    return (weights[rows].to(logits) * F.cross_entropy(logits, rows, reduction="none")).mean()
