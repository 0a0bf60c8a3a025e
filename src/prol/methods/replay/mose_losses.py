"""The terms of MOSE's loss, as functions of features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def supervised_contrast(projections: Tensor, rows: Tensor, temperature: float) -> Tensor:
    """Samples of one class are to be nearer to each other than to the rest (Khosla et al. 2020).

    mean_i of -1/|P_i| sum_{j in P_i} log softmax_{k != i}(z_i . z_k / temperature)_j, where P_i are the others of i's
    class, for projections `[N, D]` of unit length and class rows `[N]`. A sample alone in its class counts as zero.
    """
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    similarity = (projections @ projections.T / temperature).masked_fill(itself, -torch.inf)
    mates = (rows == rows.unsqueeze(1)) & ~itself
    # A choice and not a product: the logarithm of a sample's likeness to itself is -inf.
    logs = torch.where(mates, similarity.log_softmax(1), 0)
    return -(logs.sum(1) / mates.sum(1).clamp(min=1)).mean()


def current_cross_entropy(logits: Tensor, rows: Tensor, first_row: int) -> Tensor:
    """Cross entropy among the classes from `first_row` on, over the samples `[N]` that are of them; zero without any.

    `logits` are `[N, C]`, of all classes.
    """
    if logits.shape[1] <= first_row:
        return logits.sum() * 0
    counts = rows >= first_row
    each = F.cross_entropy(logits[:, first_row:], (rows - first_row).clamp(min=0), reduction="none")
    return torch.where(counts, each, 0).sum() / counts.sum().clamp(min=1)


def reverse_distillation(features: list[Tensor]) -> Tensor:
    """How far the last expert's features are from those of each one before it, which stay as they are.

    sum_e mean_i |f_last,i / |f_last,i| - f_e,i / |f_e,i||^2, each `[N, D]`.
    """
    *teachers, student = (F.normalize(one, dim=1) for one in features)
    return torch.stack([(student - one.detach()).square().sum(1).mean() for one in teachers]).sum()
