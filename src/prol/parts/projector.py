"""The linear map from features to the space in which they are contrasted."""

from __future__ import annotations

import torch
from torch import nn


def drawn_projector(features: int, width: int, seed: int, device: torch.device, dtype: torch.dtype) -> nn.Linear:
    """As torch draws a linear layer; the same for the same seed on every device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Linear(features, width).to(device, dtype)
