"""Prefixes kept in tables, as blocks want them.

Axes: L prompted blocks, 2 for key/value, H heads, l positions, d = D / H.
"""

from __future__ import annotations

from torch import Tensor

from prol.backbones import Prefix
from prol.parts.similarity import unit


def by_block(prefixes: Tensor, first_block: int = 0) -> dict[int, Prefix]:
    """`[B, L, 2, H, l, d]` as the keys and values of the L blocks from `first_block` on."""
    return {first_block + i: (prefixes[:, i, 0], prefixes[:, i, 1]) for i in range(prefixes.shape[1])}


def component_weights(query: Tensor, attention: Tensor, keys: Tensor) -> Tensor:
    """Cosine of each query, seen through a component's attention vector, to that component's key: `[B, L, R]`.

    `query` `[B, D]`; `attention` and `keys` `[R, L, D]`. The cosine of q * A and K is the product of q with A * K,
    divided by the lengths of K and of q * A, whose square is the product of q² with A²: `[B, R, D]` is never formed.
    """
    batch, (components, blocks, width) = query.shape[0], attention.shape
    along = query @ (attention * unit(keys)).reshape(-1, width).T
    length = query.square() @ attention.square().reshape(-1, width).T
    cosines = along * length.clamp(min=1e-12).rsqrt()
    return cosines.view(batch, components, blocks).transpose(1, 2)


def mixed(weights: Tensor, components: Tensor) -> Tensor:
    """Sum of components `[R, L, 2, H, l, d]` by weights `[B, L, R]`: `[B, L, 2, H, l, d]`."""
    blocks, parts = components.shape[1], components.transpose(0, 1).flatten(2)
    return (weights.transpose(0, 1) @ parts).transpose(0, 1).view(weights.shape[0], blocks, *components.shape[2:])
