"""Features of several blocks or stages, brought to one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

PRIOR = 5
"""Prior weight, in samples, of the mean variance of a chunk's features."""
FEW = 5
"""Samples below which a mean would reveal them."""
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
            parts = torch.split(x, list(widths), dim=1)
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
