"""Cosine similarity between features and class keys."""

from __future__ import annotations

import torch
from torch import Tensor


def unit(x: Tensor) -> Tensor:
    """Rows of `[..., D]` at length one; a row of zeros stays zero."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True).clamp(min=1e-12))


def cosine_to_all(features: Tensor, keys: Tensor) -> Tensor:
    """Cosine of every feature `[B, D]` to every key `[C, D]`: `[B, C]`."""
    return unit(features) @ unit(keys).T


def cosine_pairs(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of row i of `a` to row i of `b`, both `[B, D]`: `[B]`."""
    return (unit(a) * unit(b)).sum(-1)


def shared_first_hit_factor(cosine: Tensor, hits: Tensor) -> Tensor:
    """One factor for a whole batch, as the released code computes it: `[B]`, all entries equal.

    Its value is the cosine of the last sample in `hits` (those whose nearest key is candidate number 0), or zero
    without any; its gradient reaches the cosine of every hit in full.
    """
    if not bool(hits.any()):
        return torch.zeros_like(cosine)
    chosen = cosine[hits]
    shared = chosen.sum() + (chosen[-1] - chosen.sum()).detach()
    return shared.expand_as(cosine)
