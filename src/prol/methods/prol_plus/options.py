"""PROL+'s options, and how a budget of bytes is divided."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prol.backbones.preprocess import InputRange
from prol.methods.options import TaskOptions
from prol.options import Count, Positive, Whole

PLANNED_CLASSES = 100
"""Classes that a budget is divided for."""
NUMBER = 4
"""Bytes of a float32."""


@dataclass(frozen=True)
class PROLPlusOptions(TaskOptions):
    """Options of PROL+; none of them depends on the data."""

    budget_mb: Positive = 64.0
    """Megabytes of statistics at 100 classes; what the blocks leave is filled with random features."""
    features: Whole | None = None
    """How many random features, whatever the budget; by default as many as it holds, at most one per block feature."""
    blocks: Count = 6
    """How many of the last blocks are read, their class token and the mean of their patches; fewer where the budget
    holds no more."""
    pooled: bool = True
    """Whether the network's own feature is read besides."""
    bandwidth: Positive = 0.7
    """Standard deviation of the arguments of the random features' cosines."""
    prior_samples: Positive = 300.0
    """Samples that the prior of the covariance within classes counts for."""
    adapt_steps: Whole = 400
    """Most steps in which the normalisation layers are tuned, all in the first task; 0 for none."""
    adapt_lr: Positive = 0.002
    """Largest learning rate: it rises to it over the first quarter of `adapt_steps`, and falls to zero by a cosine."""
    drift_correction: bool = True
    """Whether statistics are moved along with the network while that is tuned."""
    input_range: InputRange = "backbone"
    """Values fed to the network: as the backbone was trained, plain [0, 1] (unit), or [-1, 1] (symmetric)."""
    crop_pct: float | None = None
    """Share of the shorter side that the evaluation crop covers; the backbone's own by default."""


@dataclass(frozen=True)
class Widths:
    """How wide the statistics are: `groups` of block features, earliest first, and `random` ones."""

    blocks: int
    groups: tuple[int, ...]
    random: int
    stripe: int
    """Rows of the second moments that are stored together."""

    @property
    def linear(self) -> int:
        return sum(self.groups)

    @property
    def all(self) -> int:
        return self.linear + self.random

    @property
    def all_groups(self) -> tuple[int, ...]:
        return (*self.groups, self.random)

    @property
    def levels(self) -> tuple[int, ...]:
        """How far each group is from the network's own feature: blocks by their depth, random features furthest."""
        apart = len(self.groups) - self.blocks
        return (*range(self.blocks, 0, -1), *[0] * apart, self.blocks + 1)


def plan(options: PROLPlusOptions, width: int, depth: int) -> Widths:
    """The widths for a backbone of this width and depth."""
    numbers = int(options.budget_mb * 1e6 / NUMBER)
    stripe = max(32, int((2 * numbers) ** 0.5) // 32)
    own, needed = width * options.pooled, 2 * width + width * options.pooled
    most = widest(numbers, stripe)
    if most < needed:
        least = (needed * (needed + stripe) / 2 + 2 * PLANNED_CLASSES * needed + 2 * needed) * NUMBER / 1e6
        raise ValueError(
            f"budget_mb {options.budget_mb:g} does not hold the second moments of one block's {needed} features: "
            f"give {math.ceil(10 * 1.05 * least) / 10:g} or more"
        )
    blocks = min(options.blocks, depth, (most - own) // (2 * width))
    groups = (2 * width,) * blocks + (own,) * options.pooled
    random = min(most - sum(groups), sum(groups)) if options.features is None else options.features
    return Widths(blocks, groups, random, stripe)


def widest(numbers: int, stripe: int) -> int:
    """How many features' second moments, class sums, head and scale so many numbers hold."""
    total = int((2 * numbers) ** 0.5)
    while total > 0 and total * (total + stripe) // 2 + 2 * PLANNED_CLASSES * total + 2 * total > numbers:
        total -= 1
    return total
