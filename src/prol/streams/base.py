"""What a stream is: the order of samples, where it is cut, and what the learner may be told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHARED_ARGUMENTS = ("labels", "tasks", "chunk", "seed", "class_order", "boundaries", "announce")
"""What every protocol takes; the rest are its own options."""


@dataclass(frozen=True)
class Chunk:
    """Samples that arrive together, by their number in the training half."""

    indices: NDArray[np.int64]
    task: int


@dataclass(frozen=True)
class Stream:
    """A whole stream. `task_classes[t]` are the class numbers that belong to task t, in row order.

    Every class of the stream belongs to one task. Where classes mix (`blurry` and its kin) most of its samples come
    there, some earlier or later. Chunks are in order of time, so their `task` never falls.
    """

    chunks: tuple[Chunk, ...]
    task_classes: tuple[tuple[int, ...], ...]
    boundaries_told: bool
    classes_announced: bool
