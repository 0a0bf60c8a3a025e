"""Features of several blocks or stages, brought to one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from prol.methods.closed_form.moments import Totals

PRIOR = 5
"""Prior weight, in samples, of the mean variance of a chunk's features."""
FEW = 5
"""Samples below which a mean would reveal them."""
LARGEST = 1e12
"""Features beyond this are faulty, and their squares would soon overflow."""
COPIES = 1e-9
"""Share of the mean square below which a variance over samples counts as zero."""


@dataclass(frozen=True)
class Scale:
    """A mean and an inverse deviation of each feature, `[L]`."""

    mean: Tensor
    inverse: Tensor

    @classmethod
    def of(cls, features: Tensor, widths: Sequence[int]) -> Scale:
        """From features `[B, L]` of blocks of these widths; where they are few, deviations are shrunk to a common one.

        Of a handful of samples, only one mean and one deviation for each block: nothing of a sample is stored.
        """
        x = features.double()
        if len(x) < FEW:
            alike = [(width, len(list(group))) for width, group in groupby(widths)]
            groups = torch.split_with_sizes(x, [width * blocks for width, blocks in alike], dim=1)
            by_block = [group.view(len(x), -1, width) for group, (width, _) in zip(groups, alike, strict=True)]
            mean = torch.cat([_each(group, group.mean((0, 2))) for group in by_block])
            variance = torch.cat([_each(group, group.var((0, 2), correction=0)) for group in by_block])
            return cls(mean.to(features), variance.clamp(min=1e-12).rsqrt().to(features))
        mean, variance = x.mean(0), x.var(0, correction=0)
        typical = variance.mean()
        if float(typical) <= COPIES * float(x.square().mean()):  # copies of one image: how features differ
            typical = x.var(correction=0)
        variance = (len(x) * variance + PRIOR * typical) / (len(x) + PRIOR)
        return cls(mean.to(features), variance.clamp(min=1e-12).rsqrt().to(features))

    def apply(self, features: Tensor) -> Tensor:
        return (features - self.mean) * self.inverse


def _each(group: Tensor, values: Tensor) -> Tensor:
    """A value of each block, for each of its features: `[n W]` from `[n]`, with blocks `[B, n, W]`."""
    return (values.unsqueeze(1) * torch.ones_like(group[0])).flatten()


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
