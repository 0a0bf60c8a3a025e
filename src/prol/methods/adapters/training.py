"""What the methods with adapters share: common options, and probabilities over the classes seen."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prol.methods.gradient import TrainingOptions


@dataclass(frozen=True)
class AdapterOptions(TrainingOptions):
    """Options that MOS, EASE and LAE have in common."""

    lr_scaling: bool = False
    """Whether the learning rate is scaled by the chunk size."""


def seen_softmax(logits: Tensor, seen: Tensor) -> Tensor:
    """Probabilities `[B, C]` over the classes `seen` `[C]`, zero for the others; all alike if nothing was seen."""
    return logits.masked_fill(~seen, torch.finfo(logits.dtype).min).softmax(1)
