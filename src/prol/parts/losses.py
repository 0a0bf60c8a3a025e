"""PROL's losses as pure functions of features, keys and logits; each a mean over the batch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.parts.similarity import cosine_pairs, unit


def inter_task(logits: Tensor, rows: Tensor) -> Tensor:
    """Cross entropy over all classes met so far; `[B, C]` and `[B]`."""
    return F.cross_entropy(logits, rows)


def intra_task(logits: Tensor, rows: Tensor, first_row: int) -> Tensor:
    """Cross entropy over the current task's classes, which begin at `first_row`."""
    return F.cross_entropy(logits[:, first_row:], rows - first_row)


def orthogonality(keys: Tensor, old_keys: Tensor, raw: bool = False) -> Tensor:
    """Mean product of each sample's class key with its matched old key, both `[B, D]`; signed, so it may go below zero.

    Keys are taken at length one unless `raw` (the paper's formula to the letter).
    """
    return (keys * old_keys).sum(-1).mean() if raw else cosine_pairs(keys, old_keys).mean()


def generalisation(plain: Tensor, prompted: Tensor, raw: bool = False, off_diagonal: bool = True) -> Tensor:
    """Keeps the prompted feature close to the pre-trained one, coordinate by coordinate; both `[B, D]`.

    With M = UᵀV / B: the mean of (1 - M_jj)² plus the mean of M_jk² over j ≠ k. M itself (D x D) is never formed: its
    squared norm is the sum of (UUᵀ)(VVᵀ) entries / B², two B x B matrices. Features are at length one unless `raw`.
    """
    u, v = (plain, prompted) if raw else (unit(plain), unit(prompted))
    batch, width = u.shape
    diagonal = (u * v).sum(0) / batch
    loss = (1 - diagonal).square().mean()
    if off_diagonal:
        whole = ((u @ u.T) * (v @ v.T)).sum() / batch**2
        loss = loss + (whole - diagonal.square().sum()) / (width * (width - 1))
    return loss


def require_finite(loss: Tensor, steps: int, lr: float) -> None:
    """Refuses to learn from a loss that would turn every weight into NaN."""
    if not bool(loss.isfinite()):
        raise ValueError(
            f"the loss is not finite at step {steps} of this task; nothing was learnt from it: lower lr={lr}"
        )


def clip_together(gradients: Mapping[str, Tensor], limit: float) -> dict[str, Tensor]:
    """Scales gradients so that their joint length is at most `limit`."""
    length = torch.stack([g.square().sum() for g in gradients.values()]).sum().sqrt()
    scale = (limit / (length + 1e-6)).clamp(max=1.0)
    return {name: g * scale for name, g in gradients.items()}
