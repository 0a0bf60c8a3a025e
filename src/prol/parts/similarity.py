"""Cosine similarity between features and class keys."""

from __future__ import annotations

import torch
from torch import Tensor

PARTS, LONG = 8, 4096


def inverse_length(x: Tensor) -> Tensor:
    """What rows of `[..., D]` are multiplied by to be at length one, `[..., 1]`."""
    return torch.rsqrt(x.square().sum(-1, keepdim=True).clamp(min=1e-12))


def unit(x: Tensor) -> Tensor:
    """Rows of `[..., D]` at length one; a row of zeros stays zero."""
    return x * inverse_length(x)


def cosine_to_all(features: Tensor, keys: Tensor, inverse_lengths: Tensor | None = None) -> Tensor:
    """Cosine of every feature `[B, D]` to every key `[C, D]`: `[B, C]`.

    With the keys' own `inverse_lengths` `[C, 1]` at hand this is one product, whatever their number.
    """
    scale = inverse_length(keys) if inverse_lengths is None else inverse_lengths
    return few_by_many(unit(features), keys) * scale.T


def few_by_many(few: Tensor, many: Tensor) -> Tensor:
    """Products of few rows `[B, D]` with the rows of a long table `[C, D]`: `[B, C]`.

    On a GPU, where the table is not long, the sum over D is cut into parts that are computed side by side: as one, so
    few rows would leave most of the device idle.
    """
    batch, width = few.shape
    if not few.is_cuda or width % PARTS or len(many) > LONG:
        return few @ many.T
    parts = few.view(batch, PARTS, -1).transpose(0, 1) @ many.view(len(many), PARTS, -1).permute(1, 2, 0)
    return parts.sum(0)


def cosine_pairs(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of row i of `a` to row i of `b`, both `[B, D]`: `[B]`."""
    return (unit(a) * unit(b)).sum(-1)


def shared_first_hit_factor(cosine: Tensor, hits: Tensor) -> Tensor:
    """One factor for a whole batch, as the released code computes it: `[B]`, all entries equal.

    Its value is the cosine of the last sample in `hits` (those whose nearest key is candidate number 0), or zero
    without any; its gradient reaches the cosine of every hit in full.
    """
    place = torch.arange(len(hits), device=hits.device)
    last = place == torch.where(hits, place, -1).amax()
    total = (cosine * hits).sum()
    shared = total + ((cosine * last).sum() - total).detach()
    return shared.expand_as(cosine)
