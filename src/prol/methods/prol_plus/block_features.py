"""Features of several blocks of a ViT, brought to one scale, with random ones beside them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from prol.backbones.vit import Encoded, ViT
from prol.methods.closed_form.moments import Totals

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


def block_features(encoded: Encoded) -> Tensor:
    """The class tokens and mean patches of the tapped blocks, first to last: `[B, 2 blocks D]`.

    A block's two are interleaved, so that a part of its features has something of both.
    """
    both = [torch.stack(pair, dim=2) for pair in zip(encoded.class_taps, encoded.patch_taps, strict=True)]
    return torch.stack(both, dim=1).flatten(1)


@dataclass(frozen=True)
class Scale:
    """A mean and an inverse deviation of each feature, `[L]`."""

    mean: Tensor
    inverse: Tensor

    @classmethod
    def of(cls, features: Tensor, blocks: int) -> Scale:
        """From features `[B, L]`; where those are few, deviations are shrunk towards a common one.

        Of a handful of samples, only one mean and one deviation for each block: nothing of a sample is stored.
        """
        x = features.double()
        if len(x) < FEW:
            by_block = x.view(len(x), blocks, -1)
            like = torch.ones_like(by_block[0])
            mean = (by_block.mean((0, 2)).unsqueeze(1) * like).flatten()
            variance = (by_block.var((0, 2), correction=0).unsqueeze(1) * like).flatten()
            return cls(mean.to(features), variance.clamp(min=1e-12).rsqrt().to(features))
        mean, variance = x.mean(0), x.var(0, correction=0)
        typical = variance.mean()
        if float(typical) <= COPIES * float(x.square().mean()):  # copies of one image: how features differ
            typical = x.var(correction=0)
        variance = (len(x) * variance + PRIOR * typical) / (len(x) + PRIOR)
        return cls(mean.to(features), variance.clamp(min=1e-12).rsqrt().to(features))

    def apply(self, features: Tensor) -> Tensor:
        return (features - self.mean) * self.inverse


def principal_directions(totals: Totals, linear: int, count: int) -> Tensor:
    """Directions `[linear, count]` in which the first `linear` features vary most, the first most of all."""
    samples = totals.counts.sum().clamp(min=1)
    mean = totals.sums[:, :linear].sum(0) / samples
    covariance = torch.addr(totals.gram[:linear, :linear] / samples, mean, mean, alpha=-1)
    vectors: Tensor = torch.linalg.eigh(covariance)[1]
    return vectors.flip(1)[:, :count].contiguous()


def usable(features: Tensor) -> bool:
    """Whether sums of squares of features can be added up: a NaN or infinity would stay in them."""
    return bool((features.abs() < LARGEST).all())


def require_usable(features: Tensor) -> None:
    if not usable(features):
        raise ValueError(
            "the backbone returns values that are not finite for an image of this chunk, which is not learnt: "
            "look at its weights and precision"
        )
