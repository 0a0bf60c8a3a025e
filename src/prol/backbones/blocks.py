"""The interface of a ViT to methods that work inside its blocks, with prefixes, adapters and taps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from prol.backbones.base import Backbone

Prefix = tuple[Tensor, Tensor]
"""Keys and values put before a block's own, each `[B, H, L, d]`."""

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Additions:
    """What is added inside one block.

    Args:
        prefix: keys and values, or a function that makes them from the class token that enters the block, `[B, D]`.
        adapter: runs beside the MLP: from the residual stream before its LayerNorm, `[B, N, D]`, to what is added.
        low_rank: beside the block's query, key and value map: from normed tokens `[B, N, D]` to `[B, N, 3 D]`.
    """

    prefix: Prefix | Callable[[Tensor], Prefix] | None = None
    adapter: Change | None = None
    low_rank: Change | None = None

    def only_a_prefix(self) -> bool:
        """Whether there is nothing in it but tensors put before keys and values, or nothing at all."""
        return not callable(self.prefix) and self.adapter is None and self.low_rank is None


@dataclass(frozen=True)
class Encoded:
    """The result of one pass. `class_taps` and `patch_taps` follow the order of the blocks requested."""

    feature: Tensor
    """Class token after the final LayerNorm, `[B, D]`."""
    class_token: Tensor
    """Class token before that LayerNorm."""
    class_taps: tuple[Tensor, ...] = ()
    """Class token after chosen blocks, `[B, D]` each."""
    patch_taps: tuple[Tensor, ...] = ()
    """Mean of the patch tokens after chosen blocks, `[B, D]` each."""
    rows: Tensor | None = None
    """The first tokens after the final LayerNorm, `[B, rows, D]`, where more than the class token was requested."""

    def interleaved(self) -> Tensor:
        """The class tokens and mean patches of the tapped blocks, first to last: `[B, 2 blocks D]`.

        A block's two are interleaved, so that a part of its features has something of both.
        """
        both = [torch.stack(pair, dim=2) for pair in zip(self.class_taps, self.patch_taps, strict=True)]
        return torch.stack(both, dim=1).flatten(1)


@runtime_checkable
class Transformer(Backbone, Protocol):
    """A backbone with a class token and standard blocks, inside which a method may add something."""

    depth: int
    """How many blocks it has."""
    heads: int
    """Attention heads of each block."""

    @property
    def class_position(self) -> Tensor | None:
        """The position that is added to the class token, `[1, 1, D]`; None where it has none."""
        ...

    def embed(self, inputs: Tensor) -> Tensor:
        """Images `[B, 3, S, S]` to tokens `[B, 1 + registers + patches, D]` with positions."""
        ...

    def encode(
        self,
        tokens: Tensor,
        prefixes: Mapping[int, Prefix] | None = None,
        taps: Sequence[int] = (),
        *,
        additions: Mapping[int, Additions] | None = None,
        rows: int = 1,
    ) -> Encoded:
        """Runs all blocks; `prefixes[i]` goes before block i's keys and values, `taps` names blocks to read out.

        `additions[i]` holds whatever else is added inside block i. The last block computes only the first `rows` tokens
        unless its patches are requested.
        """
        ...

    def token_prefix(self, block: int, tokens: Tensor) -> Prefix:
        """Keys and values of tokens `[B, L, D]` in a block, as its prefix.

        With it, the block computes what it would compute if they were put beside its input and cut off behind it.
        """
        ...

    def final_norm(self, tokens: Tensor) -> Tensor:
        """The LayerNorm behind the last block."""
        ...


def require_vit(method: str, backbone: object, blocks: int = 0) -> Transformer:
    """The backbone, if it is a ViT with at least so many blocks."""
    if not isinstance(backbone, Transformer):
        raise ValueError(f"method {method} needs a ViT as backbone, got {type(backbone).__name__}")
    if blocks > backbone.depth:
        raise ValueError(f"{blocks} prompted blocks, but the backbone has {backbone.depth}: prompt fewer of them")
    return backbone
