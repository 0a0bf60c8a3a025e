"""Losses as pure functions of logits, each a mean over the batch; limits on gradients, and classes that compete.

`counts` `[B]` says which samples a mean is over, all of them by default; where none counts it is zero. A mask and not a
selection: shapes do not depend on the labels, so that a step can be captured as one graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor


def mean_over(values: Tensor, counts: Tensor | None) -> Tensor:
    """The mean of those `values` `[B]` that count."""
    if counts is None:
        return values.mean()
    return torch.where(counts, values, 0).sum() / counts.sum().clamp(min=1)


def inter_task(logits: Tensor, columns: Tensor) -> Tensor:
    """Cross entropy over all classes seen so far; `[B, C]` and each sample's own column `[B]`."""
    return F.cross_entropy(logits, columns)


def intra_task(logits: Tensor, columns: Tensor, own: Tensor, counts: Tensor | None = None) -> Tensor:
    """The same over the current task's classes, bool `[C]`."""
    logits = logits.masked_fill(~own, -torch.inf)
    if counts is not None:
        columns = torch.where(counts, columns, own.int().argmax())  # others have no finite loss
    return mean_over(F.cross_entropy(logits, columns, reduction="none"), counts)


def clip_together(
    gradients: Mapping[str, Tensor], limit: float, rows: Mapping[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Scales gradients so that their joint length is at most `limit`.

    `rows` names those that belong to rows of a table, `[R, ...]` and `[R]`, where one row may come several times: its
    gradient is the sum.
    """
    rows = rows or {}
    squares = [_squared_length(g, rows.get(name)) for name, g in gradients.items()]
    length = torch.stack(squares).sum().sqrt()
    scale = (limit / (length + 1e-6)).clamp(max=1.0)
    return {name: g * scale for name, g in gradients.items()}


def _squared_length(gradient: Tensor, rows: Tensor | None) -> Tensor:
    if rows is None:
        return gradient.square().sum()
    flat = gradient.reshape(len(gradient), gradient.shape[1:].numel())
    # |sum of a row's parts|² is the sum of all their products.
    return torch.where(rows == rows.unsqueeze(1), flat @ flat.T, 0).sum()


Mask = Literal["task", "batch", "seen"]
"""task: the current task's classes and those of the chunk; batch: those of the chunk; seen: all classes so far."""


def allowed_classes(mask: Mask, rows: Tensor, first_row: int, classes: int) -> Tensor:
    """Classes that compete, bool `[C]`, in a chunk of class rows `[B]` in the task that begins at `first_row`.

    A sample's own class always competes, also one of an earlier task that comes again: without it the loss would be
    infinite.
    """
    if mask == "seen":
        return torch.ones(classes, dtype=torch.bool, device=rows.device)
    allowed = torch.zeros(classes, dtype=torch.bool, device=rows.device)
    if mask == "task":
        allowed[first_row:] = True
    return allowed.index_fill(0, rows, True)  # and not `allowed[rows] = True`, which copies a value from the host


def masked_cross_entropy(logits: Tensor, rows: Tensor, allowed: Tensor) -> Tensor:
    """Mean cross entropy of `[B, C]` over the classes `allowed` `[C]`; `rows` `[B]` are the samples' own."""
    return F.cross_entropy(logits.masked_fill(~allowed, -torch.inf), rows)
