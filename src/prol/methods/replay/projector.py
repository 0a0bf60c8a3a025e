"""A linear map of features into the space where they are compared."""

from __future__ import annotations

import torch
from torch import nn


def drawn_projector(width: int, projected: int, seed: int, device: torch.device, dtype: torch.dtype) -> nn.Linear:
    """From `width` to `projected` numbers, drawn as torch does; the same for the same seed on every device."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed((seed + 1) % 2**63)  # not the numbers that the network's weights are drawn from
        return nn.Linear(width, projected).to(device, dtype)
