"""PROL+'s options, and how a budget of bytes is divided."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prol.backbones.preprocess import InputRange
from prol.methods.options import TaskOptions
from prol.methods.prol_plus.class_covariances import packed_length, widest
from prol.options import Count, Positive, Whole

PLANNED_CLASSES = 100
"""Classes that a budget is divided for; with more of them each class has fewer directions."""
OWN_SHARE, WHOLE_SHARE = 1 / 3, 0.55
"""Share of the budget for class covariances, and their share if it holds them in all directions."""
LINEAR_SHARE = 0.6
"""Maximum share of block features; the others are random ones."""
NUMBER = 4
"""Bytes of a float32."""


@dataclass(frozen=True)
class PROLPlusOptions(TaskOptions):
    """Options of PROL+; none of them depends on the data."""

    budget_mb: Positive = 64.0
    """Megabytes of statistics at 100 classes; what the rest leaves is filled with random features."""
    features: Whole | None = None
    """How many random features, whatever the budget; by default as many as it holds."""
    blocks: Count = 6
    """How many of the last blocks are read, their class token and the mean of their patches; fewer where the budget
    holds no more. Of networks without blocks, the means of the last stages."""
    bandwidth: Positive = 0.7
    """Standard deviation of the arguments of the random features' cosines."""
    class_directions: Whole | None = None
    """Directions in which each class has a covariance; by default as many as the budget holds, 0 for none."""
    prior_weight: Positive = 2.0
    """Samples for each of these directions with which a class covariance weighs as much as the shared one."""
    shrinkage_factor: Positive = 0.1
    """Shrinkage as a share of the penalty that cross-validation finds best for ridge regression."""
    penalty: Positive | None = None
    """A shrinkage to use instead, in units of the features' mean variance; by default cross-validation decides."""
    shrink_means: bool = True
    """Whether class means are shrunk by their noise (James-Stein)."""
    adapt_steps: Whole = 400
    """Most steps in which the LayerNorms are tuned, all in the first task; 0 for none."""
    adapt_lr: Positive = 0.002
    """Where the learning rate begins, to fall to zero by a cosine over `adapt_steps`."""
    drift_correction: bool = True
    """Whether statistics are moved along with the network while that is tuned."""
    input_range: InputRange = "backbone"
    """Values fed to the network: as the backbone was trained, plain [0, 1] (unit), or [-1, 1] (symmetric)."""
    crop_pct: float | None = None
    """Share of the shorter side that the evaluation crop covers; the backbone's own by default."""


@dataclass(frozen=True)
class Widths:
    """How wide the statistics are: features of blocks, `random` ones, `own` directions of a class."""

    taps: tuple[int, ...]
    """Features of each block that is read."""
    random: int
    own: int
    own_room: int
    """Bytes for all class covariances together."""
    stripe: int
    """Rows of the second moments that are stored together."""

    @property
    def blocks(self) -> int:
        return len(self.taps)

    @property
    def linear(self) -> int:
        return sum(self.taps)

    @property
    def all(self) -> int:
        return self.linear + self.random


def plan(options: PROLPlusOptions, taps: tuple[int, ...]) -> Widths:
    """The widths for a backbone with blocks or stages of so many features."""
    found = _fitted(options, options.budget_mb, taps)
    if found is None:
        least = options.budget_mb
        while _fitted(options, least, taps) is None:
            least *= 1.05
        raise ValueError(
            f"budget_mb {options.budget_mb:g} does not hold the second moments of one block's {taps[-1]} features: "
            f"give {math.ceil(10 * least) / 10:g} or more"
        )
    return found


def _fitted(options: PROLPlusOptions, budget_mb: float, taps: tuple[int, ...]) -> Widths | None:
    numbers = int(budget_mb * 1e6 / NUMBER)
    total, stripe = int((2 * numbers) ** 0.5), max(32, int((2 * numbers) ** 0.5) // 32)
    while total > 0:
        read = taps[-options.blocks :]
        while sum(read) > int(LINEAR_SHARE * total):
            read = read[1:]
        linear = sum(read)
        own = _own(options.class_directions, numbers, linear)
        gram, by_class = total * (total + stripe) // 2, 2 * total + packed_length(own)  # sums and head
        directions = linear * own if own < linear else 0
        if gram + PLANNED_CLASSES * by_class + directions + 2 * linear <= numbers:
            break
        total -= 1
    if total == 0 or not read:
        return None
    random = total - linear if options.features is None else options.features
    return Widths(read, random, own, PLANNED_CLASSES * packed_length(own) * NUMBER if own else 0, stripe)


def _own(requested: int | None, numbers: int, linear: int) -> int:
    """The number of directions in which a class has its own covariance."""
    share, whole = (widest(int(part * numbers) // PLANNED_CLASSES) for part in (OWN_SHARE, WHOLE_SHARE))
    most = linear if whole >= linear else share
    return most if requested is None else min(requested, most)
