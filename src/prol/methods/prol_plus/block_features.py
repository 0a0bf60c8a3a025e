"""Features of several blocks of a ViT, brought to one scale, with random ones beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prol.backbones.vit import Encoded, ViT

PRIOR = 5
"""Prior weight, in samples, of the mean variance of a chunk's features."""
FEW = 5
"""Samples below which a mean would reveal them."""
LARGEST = 1e12
"""Features beyond this are faulty, and their squares would soon overflow."""
COPIES = 1e-9
"""Share of the mean square below which a variance over samples counts as zero."""


def last_blocks(network: ViT, blocks: int) -> range:
    return range(network.depth - blocks, network.depth)


def block_features(encoded: Encoded, pooled: bool) -> Tensor:
    """The class tokens and mean patches of the tapped blocks, first to last, then the network's own feature.

    `[B, 2 blocks D + D]`, or `[B, 2 blocks D]` without the latter. A block's two are interleaved.
    """
    both = [torch.stack(pair, dim=2).flatten(1) for pair in zip(encoded.class_taps, encoded.patch_taps, strict=True)]
    return torch.cat([*both, encoded.feature] if pooled else both, dim=1)


@dataclass(frozen=True)
class Scale:
    """A mean and an inverse deviation of each feature, `[L]`."""

    mean: Tensor
    inverse: Tensor

    @classmethod
    def of(cls, features: Tensor, groups: Sequence[int]) -> Scale:
        """From features `[B, L]`; where those are few, deviations are shrunk towards a common one.

        Of a handful of samples, only one mean and one deviation for each of the `groups`, which are so many features
        each: nothing of a sample is stored.
        """
        x = features.double()
        if len(x) < FEW:
            parts = x.split(list(groups), dim=1)
            mean = torch.cat([part.mean().expand(part.shape[1]) for part in parts])
            variance = torch.cat([part.var(correction=0).expand(part.shape[1]) for part in parts])
            return cls(mean.to(features), variance.clamp(min=1e-12).rsqrt().to(features))
        mean, variance = x.mean(0), x.var(0, correction=0)
        typical = variance.mean()
        if float(typical) <= COPIES * float(x.square().mean()):  # copies of one image: how features differ
            typical = x.var(correction=0)
        variance = (len(x) * variance + PRIOR * typical) / (len(x) + PRIOR)
        return cls(mean.to(features), variance.clamp(min=1e-12).rsqrt().to(features))

    def apply(self, features: Tensor) -> Tensor:
        return (features - self.mean) * self.inverse


def usable(features: Tensor) -> bool:
    """Whether sums of squares of features can be added up: a NaN or infinity would stay in them."""
    return bool((features.abs() < LARGEST).all())


def require_usable(features: Tensor) -> None:
    if not usable(features):
        raise ValueError(
            "the backbone returns values that are not finite for an image of this chunk, which is not learnt: "
            "look at its weights and precision"
        )
