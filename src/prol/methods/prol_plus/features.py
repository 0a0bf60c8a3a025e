"""PROL+'s options, how a budget of bytes is divided among its features, and the scale of those of blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prol.backbones.base import InputRange
from prol.options import Count, CropShare, Options, Positive, Whole

PLANNED_CLASSES = 100
"""Classes that a budget is divided for."""
NUMBER = 4
"""Bytes of a float32."""
PRIOR = 5
"""Prior weight, in samples, of the mean variance of a chunk's features."""
FEW = 5
"""Samples below which a mean would reveal them."""
COPIES = 1e-9
"""Share of the mean square below which a variance over samples counts as zero."""


@dataclass(frozen=True)
class PROLPlusOptions(Options):
    """Options of PROL+; none of them depends on the data."""

    retired = frozenset({"own", "trust", "ease", "draw_in", "penalty", "task_min_classes", "task_min_steps"})

    budget_mb: Positive = 64.0
    """Megabytes of statistics at 100 classes; what the blocks leave is filled with random features."""
    features: Whole | None = None
    """How many random features, whatever the budget; by default as many as it holds, at most one per block feature."""
    blocks: Count = 6
    """How many of the last blocks are read, their class token and the mean of their patches. Where the budget does not
    hold both, the class token alone, then fewer blocks. Of networks without blocks, the means of the last stages."""
    pooled: bool = True
    """Whether the network's own feature is read besides."""
    bandwidth: Positive = 0.7
    """Standard deviation of the arguments of the random features' cosines."""
    prior_samples: Positive = 300.0
    """Samples that the prior of the covariance within classes counts for."""
    adapt_steps: Whole = 400
    """Chunks in which the normalisation layers are tuned, at most, and only until the first boundary; 0 for none."""
    adapt_lr: Positive = 0.002
    """Largest learning rate of the tuning, to which it rises over a quarter of `adapt_steps` before it falls to zero by
    a cosine."""
    drift_correction: bool = True
    """Whether statistics are moved along with the network while that is tuned."""
    input_range: InputRange = "backbone"
    """Values fed to the network: as the backbone was trained, plain [0, 1] (unit), or [-1, 1] (symmetric)."""
    crop_pct: CropShare | None = None
    """Share of the shorter side that the evaluation crop covers; the backbone's own by default."""


@dataclass(frozen=True)
class Widths:
    """How wide the statistics are: features of blocks, the network's own feature, and random ones."""

    taps: tuple[int, ...]
    """Features of each block that is read, the earliest first."""
    pooled: int
    """Features of the network's own feature, 0 where that is the last tap."""
    random: int
    nearest: int
    """Level of the last tap."""
    stripe: int
    """Rows of the second moments that are stored together."""
    class_tokens: bool = False
    """Whether of each block the class token alone is read: every second of its features."""

    @property
    def blocks(self) -> int:
        return len(self.taps)

    @property
    def groups(self) -> tuple[int, ...]:
        """How many features there are of each kind, but for the random ones."""
        return (*self.taps, self.pooled) if self.pooled else self.taps

    @property
    def linear(self) -> int:
        return sum(self.groups)

    @property
    def own(self) -> slice:
        """Where the network's own feature is; without it, the last tap."""
        return slice(self.linear - self.groups[-1], self.linear)

    @property
    def all(self) -> int:
        return self.linear + self.random

    @property
    def levels(self) -> list[int]:
        """How far each feature is from the network's own: a block by its depth, random features furthest."""
        taps = [self.nearest + self.blocks - 1 - place for place in range(self.blocks)]
        levels = [*taps, *[0] * (self.pooled > 0), self.nearest + self.blocks]
        return [level for level, count in zip(levels, (*self.groups, self.random), strict=True) for _ in range(count)]


def plan(options: PROLPlusOptions, taps: tuple[int, ...], width: int) -> Widths:
    """The widths for a backbone of this width with blocks or stages of so many features."""
    numbers = int(options.budget_mb * 1e6 / NUMBER)
    is_tap = taps[-1] == width  # of a network without class token, the last tap is its own feature
    pooled = width * (options.pooled and not is_tap)
    for parts in (1, 2) if taps[-1] == 2 * width else (1,):  # both parts of a block, or its class token
        stripe = max(32, int((2 * numbers) ** 0.5) // (32 * parts))
        most, read = widest(numbers, stripe), tuple(tap // parts for tap in taps[-options.blocks :])
        if sum(read) + pooled <= most:
            break
    while sum(read) + pooled > most and read:
        read = read[1:]
    if not read:
        needed = taps[-1] // parts + pooled
        least = (needed * (needed + stripe) / 2 + 2 * PLANNED_CLASSES * needed + 2 * needed) * NUMBER / 1e6
        raise ValueError(
            f"budget_mb {options.budget_mb:g} does not hold second moments of {needed - pooled} features of one block: "
            f"give {math.ceil(10 * 1.05 * least) / 10:g} or more"
        )
    linear = sum(read) + pooled
    random = min(most - linear, linear) if options.features is None else options.features
    return Widths(read, pooled, random, int(not is_tap), stripe, parts == 2)


def widest(numbers: int, stripe: int) -> int:
    """How many features' second moments, class sums, head and scale so many numbers hold."""
    total = int((2 * numbers) ** 0.5)
    while total > 0 and total * (total + stripe) // 2 + 2 * PLANNED_CLASSES * total + 2 * total > numbers:
        total -= 1
    return total


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
