"""Cosine similarity between features and class keys."""

from __future__ import annotations

import torch
from torch import Tensor

COLUMNS, STRIP = 8, 2048


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
    """Products of few rows `[B, D]` with the rows of a table `[C, D]`: `[B, C]`.

    On a GPU, as one product, so few rows would leave most of the device idle, on the way forward with a short table
    and on the way back with a long one: it is split into parts that are computed in parallel.
    """
    if not few.is_cuda:
        return few @ many.T
    return _in_strips(few, many) if len(many) > STRIP else _in_columns(few, many)


def _in_columns(few: Tensor, many: Tensor) -> Tensor:
    """The sum over D in parts."""
    if few.shape[1] % COLUMNS:
        return few @ many.T
    one = few.reshape(len(few), COLUMNS, -1).transpose(0, 1)
    other = many.reshape(len(many), COLUMNS, -1).permute(1, 2, 0)
    return (one @ other).sum(0)


def _in_strips(few: Tensor, many: Tensor) -> Tensor:
    """The table's rows in parts."""
    if len(many) % STRIP:
        return few @ many.T
    strips = many.reshape(-1, STRIP, many.shape[1])
    parts = few.expand(len(strips), -1, -1) @ strips.transpose(1, 2)
    return parts.transpose(0, 1).flatten(1)


def cosine_pairs(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of row i of `a` to row i of `b`, both `[B, D]`: `[B]`."""
    return (unit(a) * unit(b)).sum(-1)


def classmates(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Which samples of class rows `[B]` are of one class, 0 or 1 `[B, B]`, and which come first in theirs, bool `[B]`.

    A product with the former is the sum over each sample's class, so that shapes do not depend on the labels; and
    it adds in one order, also on a GPU.
    """
    same = rows == rows.unsqueeze(1)
    return same.double(), ~same.tril(-1).any(1)
