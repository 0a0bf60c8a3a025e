"""What a stream is: the order of samples, where it is cut, and what the learner may be told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Chunk:
    """Samples that arrive together, by their number in the training half."""

    indices: NDArray[np.int64]
    task: int


@dataclass(frozen=True)
class Stream:
    """A whole stream. `task_classes[t]` are the class numbers that first appear in task t, in row order."""

    chunks: tuple[Chunk, ...]
    task_classes: tuple[tuple[int, ...], ...]
    boundaries_told: bool
    classes_announced: bool
