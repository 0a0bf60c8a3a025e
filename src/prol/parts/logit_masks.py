"""Which classes compete in a training step: logits of the others are -inf, so that their rows get no gradient."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Mask = Literal["task", "batch", "seen"]
"""task: the current task's classes and those of the chunk; batch: those of the chunk; seen: all met so far."""


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
