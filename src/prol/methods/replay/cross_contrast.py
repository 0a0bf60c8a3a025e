"""Two groups of samples drawn together where they are of one class, and two sets of logits of one sample."""

from __future__ import annotations

import torch
from torch import Tensor

TEMPERATURE = 0.07


def cross_contrast(
    a: Tensor, b: Tensor, same: Tensor, in_a: Tensor, in_b: Tensor, temperature: float = TEMPERATURE
) -> Tensor:
    """How little each sample of one group picks those of its class out of the other; 0 where a group is empty.

    The mean over all pairs of -log softmax_j(a_i·b_j / temperature), pairs of different classes adding nothing. Groups
    are masks, so that their sizes may vary in a step of fixed shape.

    Args:
        a: unit vectors `[N, D]`, of which `in_a`, bool `[N]`, says who belongs to the group.
        b: unit vectors `[M, D]`, with `in_b` `[M]`.
        same: whether two are of one class, bool `[N, M]`.
    """
    scores = a @ b.T / temperature
    # The least number and not -inf: where nobody is in `b`, the row stays finite, and so does its gradient.
    log_p = scores.masked_fill(~in_b, torch.finfo(scores.dtype).min).log_softmax(1)
    counts = same & in_a.unsqueeze(1) & in_b
    pairs = (in_a.sum() * in_b.sum()).clamp(min=1)
    return -torch.where(counts, log_p, 0).sum() / pairs


def softened_divergence(logits: Tensor, others: Tensor, temperature: float) -> Tensor:
    """T² KL(softmax(logits / T) || softmax(others / T)) of `[B, C]`, the mean over samples."""
    log_p, log_q = (logits / temperature).log_softmax(1), (others / temperature).log_softmax(1)
    return temperature**2 * (log_p.exp() * (log_p - log_q)).sum(1).mean()
