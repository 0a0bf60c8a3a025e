"""Floating-point operations of the passes of a ViT, counted from shapes.

A multiply-add counts as two, in matrix products and attention only. Norms, activations, the search among keys and the
heads are left out: together they are less than 1 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prol.backbones import Backbone, ViT


@dataclass(frozen=True)
class Shape:
    """Sizes of a ViT: tokens with the class token, their width, blocks, hidden width of the MLP, values per patch."""

    tokens: int
    width: int
    depth: int
    hidden: int
    patch: int

    @classmethod
    def of(cls, vit: ViT) -> Shape:
        model = vit.model
        height, width = model.patch_embed.patch_size
        return cls(
            tokens=1 + model.patch_embed.num_patches,
            width=vit.width,
            depth=vit.depth,
            hidden=model.blocks[0].mlp.fc1.out_features,
            patch=3 * height * width,
        )


def forward(
    shape: Shape,
    prefix: int = 0,
    prefixed: int = 0,
    *,
    embedding: bool = True,
    first_map: bool = True,
    class_row_only: bool = True,
) -> int:
    """Operations of one forward pass of one image.

    Args:
        prefix: keys and values prepended in each of the first `prefixed` blocks.
        embedding: whether patches are embedded; a second pass reuses the tokens.
        first_map: whether block 0 computes queries, keys and values; a second pass with the same norm reuses them.
        class_row_only: whether the last block computes the class token only.

    >>> vit_base = Shape(tokens=197, width=768, depth=12, hidden=3072, patch=768)
    >>> f"{forward(vit_base) / 1e9:.1f} GFLOP, {forward(vit_base, class_row_only=False) / 1e9:.1f} for all tokens"
    '32.7 GFLOP, 35.1 for all tokens'
    """
    return _pass(shape, prefix, prefixed, embedding, first_map, class_row_only, attention_products=2)


def backward(shape: Shape, prefix: int = 0, prefixed: int = 0, *, first_map: bool = True) -> int:
    """Operations of the backward pass through activations with frozen weights: as forward, except for attention.

    The backward pass of fused attention has five products instead of two, since it recomputes the attention weights.
    """
    return _pass(shape, prefix, prefixed, False, first_map, True, attention_products=5)


def _pass(
    shape: Shape,
    prefix: int,
    prefixed: int,
    embedding: bool,
    first_map: bool,
    class_row_only: bool,
    attention_products: int,
) -> int:
    n, d = shape.tokens, shape.width
    total = 2 * (n - 1) * shape.patch * d if embedding else 0
    for block in range(shape.depth):
        rows = 1 if class_row_only and block == shape.depth - 1 else n
        keys = n + (prefix if block < prefixed else 0)
        if block > 0 or first_map:
            total += 2 * d * d * (rows + 2 * n)
        total += attention_products * 2 * rows * keys * d
        total += 2 * rows * d * d + 2 * 2 * rows * d * shape.hidden
    return total


@dataclass(frozen=True)
class Work:
    """Operations per image: of a training step, and of a prediction."""

    train: int
    predict: int


def work_of(method: str, options: Any, backbone: Backbone) -> Work | None:
    """Operations of a method in its network; None if its passes are not known here.

    PROL: a query pass, a prompted pass and a backward pass. With frozen norms the two forward passes share the queries,
    keys and values of block 0, and the backward pass ends before them.
    """
    if method != "prol" or not isinstance(backbone, ViT) or not (options.generator and options.keys):
        return None
    shape, prompts = Shape.of(backbone), (options.length, options.blocks)
    query = forward(shape)
    prompted = forward(shape, *prompts, embedding=False, first_map=options.tune_norms)
    return Work(query + prompted + backward(shape, *prompts, first_map=options.tune_norms), query + prompted)
