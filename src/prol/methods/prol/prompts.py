"""PROL's prompts: one small convolution of the query gives every block's and head's prefix.

Axes: L prompted blocks, 2 for key/value, H heads, l positions, d = D / H.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def generator_input(query: Tensor, heads: int) -> Tensor:
    """Every H-th coordinate of the query `[B, D]`, starting at 0: `[B, d]`."""
    return query[:, ::heads]


def sum_with_previous_block(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Generator whose block i yields its own output plus that of block i - 1; `[L, 2, H, 3]` and `[L, 2, H]`."""
    weight = torch.cat([weight[:1], weight[1:] + weight[:-1]])
    return weight, None if bias is None else torch.cat([bias[:1], bias[1:] + bias[:-1]])


def generate(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """All 2·L·H kernels of width 3 in one convolution of `[B, d]`: `[B, L, 2, H, d]`."""
    kernels = weight.reshape(-1, 1, 3)
    out = F.conv1d(inputs.unsqueeze(1), kernels, None if bias is None else bias.reshape(-1), padding=1)
    return out.view(inputs.shape[0], *weight.shape[:3], -1)


def assemble(
    generated: Tensor, factor: Tensor, scaler: Tensor | None, shifter: Tensor | None, length: int, layer_sum: bool
) -> Tensor:
    """Prefixes `[B, L, 2, H, l, d]` from generated values `[B, L, 2, H, d]` and each sample's factor `[B]`.

    With u = factor · generated, position 1 is u and position i is scaler_i · u + shifter_i. `scaler` and `shifter` are
    `[B, 2, l]` (column 0 unused); without them every position is u. `layer_sum` says that `generated` already holds the
    sum with the block before, so that from the second block on shifters count twice.
    """
    u = (factor.view(-1, 1, 1, 1, 1) * generated).unsqueeze(4)
    if scaler is None or shifter is None:
        return u.expand(-1, -1, -1, -1, length, -1)
    times = torch.ones(generated.shape[1], dtype=u.dtype, device=u.device)
    if layer_sum:
        times[1:] = 2
    scale = scaler[:, None, :, None, 1:, None]
    shift = shifter[:, None, :, None, 1:, None] * times.view(1, -1, 1, 1, 1, 1)
    return torch.cat([u, scale * u + shift], dim=4)
