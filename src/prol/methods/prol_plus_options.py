"""PROL+'s dials, and how a budget of bytes is divided."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prol.backbones import InputRange
from prol.parts.own_covariances import packed_length, widest

PLANNED_CLASSES = 100
"""Classes that a budget is divided for; with more of them each has fewer directions of its own."""
OWN_SHARE, WHOLE_SHARE = 1 / 3, 0.55
"""Share of the budget for own covariances, and that which they may have if it holds them in all directions."""
LINEAR_SHARE = 0.6
"""Most of the features that may be the blocks' own; the others are random ones."""
NUMBER = 4
"""Bytes of a float32."""


@dataclass(frozen=True)
class PROLPlusOptions:
    """Dials of PROL+; none of them depends on the data."""

    budget_mb: float = 64.0
    """Megabytes of statistics at 100 classes; what the rest leaves is filled with random features."""
    features: int | None = None
    """How many random features, whatever the budget; by default as many as it holds."""
    blocks: int = 6
    """How many of the last blocks are read, their class token and the mean of their patches; fewer where the budget
    holds no more."""
    frequency: float = 0.7
    """Standard deviation of what goes into the cosines of the random features."""
    own: int | None = None
    """Directions in which a class has a covariance of its own; by default as many as the budget holds, 0 for none."""
    trust: float = 2.0
    """Samples for each of these directions with which a class's own covariance weighs as much as the shared one."""
    ease: float = 0.1
    """Shrinkage as a share of the penalty that cross-validation finds best for ridge regression."""
    penalty: float | None = None
    """A shrinkage to use instead, in units of the features' mean variance; by default cross-validation decides."""
    draw_in: bool = True
    """Whether class means are drawn in by their noise."""
    adapt_steps: int = 400
    """Most steps in which the LayerNorms are tuned, all in the first task; 0 for none."""
    adapt_lr: float = 0.002
    """Where the rate begins, to fall to zero by a cosine over `adapt_steps`."""
    carry: bool = True
    """Whether what was seen moves along with the network while that is tuned."""
    input_range: InputRange = "backbone"
    crop_pct: float | None = None
    task_min_classes: int = 2
    task_min_steps: int = 50

    def __post_init__(self) -> None:
        for name in ("blocks", "task_min_classes", "task_min_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("features", "own", "adapt_steps"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} must be 0 or more, got {value}")
        for name in ("budget_mb", "frequency", "trust", "ease", "penalty", "adapt_lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be a finite number above 0, got {getattr(self, name)}")


@dataclass(frozen=True)
class Widths:
    """How wide the statistics are: `linear` features of so many blocks, `random` ones, `own` directions of a class."""

    blocks: int
    linear: int
    random: int
    own: int
    own_room: int
    """Bytes for all classes' own covariances together."""
    stripe: int
    """Rows of the second moments that are stored together."""

    @property
    def all(self) -> int:
        return self.linear + self.random


def plan(options: PROLPlusOptions, width: int, depth: int) -> Widths:
    """The widths for a backbone of this width and depth."""
    found = _fitted(options, options.budget_mb, width, depth)
    if found is None:
        least = options.budget_mb
        while _fitted(options, least, width, depth) is None:
            least *= 1.05
        raise ValueError(
            f"budget_mb {options.budget_mb:g} does not hold the second moments of one block's {2 * width} features: "
            f"give {math.ceil(10 * least) / 10:g} or more"
        )
    return found


def _fitted(options: PROLPlusOptions, budget_mb: float, width: int, depth: int) -> Widths | None:
    numbers = int(budget_mb * 1e6 / NUMBER)
    total, stripe = int((2 * numbers) ** 0.5), max(32, int((2 * numbers) ** 0.5) // 32)
    while total > 0:
        blocks = min(options.blocks, depth, int(LINEAR_SHARE * total) // (2 * width))
        linear = 2 * blocks * width
        own = _own(options.own, numbers, linear)
        gram, by_class = total * (total + stripe) // 2, 2 * total + packed_length(own)  # sums and head
        directions = linear * own if own < linear else 0
        if gram + PLANNED_CLASSES * by_class + directions + 2 * linear <= numbers:
            break
        total -= 1
    if total == 0 or blocks < 1:
        return None
    random = total - linear if options.features is None else options.features
    return Widths(blocks, linear, random, own, PLANNED_CLASSES * packed_length(own) * NUMBER if own else 0, stripe)


def _own(asked: int | None, numbers: int, linear: int) -> int:
    """In how many of so many directions a class has a covariance of its own."""
    share, whole = (widest(int(part * numbers) // PLANNED_CLASSES) for part in (OWN_SHARE, WHOLE_SHARE))
    most = linear if whole >= linear else share
    return most if asked is None else min(asked, most)
