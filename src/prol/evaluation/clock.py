"""How far a run is, and data that do not wait: which chunks a learner misses when they arrive at a given rate.

The clock is virtual. Chunk k has arrived when its last image has: `a_k = (n_1 + ... + n_k) / rate`. A learner that is
free at time f begins chunk k at `max(a_k, f)` and is free again a step's time later. Testing takes no time: it models
predictions of a copy, made when the learner is done with all that came before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass
class Cursor:
    """Counts of what is done; plain numbers and lists, so that it can be written as JSON.

    `correct[i][t]` of `total[i][t]` test images of task i were right after task t. The other lists hold such pairs
    too: at points of the stream, after the first chunks of each task, of each task's chunks before they were learnt,
    and of each class after the last evaluation. `free_at` is the virtual time at which the learner is free again.
    """

    chunks: int = 0
    tasks_begun: int = 0
    tasks_evaluated: int = 0
    correct: list[list[int]] = field(default_factory=list)
    total: list[list[int]] = field(default_factory=list)
    skipped_train: int = 0
    skipped_test: list[int] = field(default_factory=list)
    points: list[list[int]] = field(default_factory=list)
    shots: list[list[list[int]]] = field(default_factory=list)
    prequential: list[list[int]] = field(default_factory=list)
    classes: list[list[int]] = field(default_factory=list)
    confidence: list[list[float]] = field(default_factory=list)
    steps: int = 0
    free_at: float = 0.0
    lag_sum: float = 0.0
    lag_most: float = 0.0
    missed_chunks: int = 0
    missed_images: int = 0

    def begin_task(self) -> None:
        self.tasks_begun += 1
        self.shots.append([])
        self.prequential.append([0, 0])

    def note_accuracy(self, task: int, counts: list[tuple[int, int]]) -> None:
        """Records (correct, total) of every task seen so far, after `task`."""
        for row in range(task + 1):
            if row == len(self.correct):
                self.correct.append([0] * task)
                self.total.append([0] * task)
            self.correct[row].append(counts[row][0])
            self.total[row].append(counts[row][1])
        self.tasks_evaluated = task + 1


# Times that are equal on paper, such as 3 x 0.1 and 0.3, must not decide by their last bit.
_SAME_TIME = 1e-9


@dataclass(frozen=True)
class Clock:
    """How fast data arrive, and what happens to chunks that arrive while the learner is busy.

    Args:
        rate: images per second.
        keep: how many chunks may wait; one more replaces the oldest. With 0 a chunk that arrives while the learner is
            busy is lost.
        step_seconds: time of a step: one number for all, or one for each step (the list is repeated); None for the
            measured time.
    """

    rate: float
    keep: int = 0
    step_seconds: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"rate must be a number of images per second above 0, got {self.rate}")
        if self.keep < 0:
            raise ValueError(f"keep must be 0 or more waiting chunks, got {self.keep}")
        given = self.step_seconds
        times = () if given is None else (given,) if isinstance(given, int | float) else given
        if given is not None and (not times or not all(0 <= seconds < float("inf") for seconds in times)):
            raise ValueError(f"step seconds must be one or more numbers, 0 or above, got {given}")

    def step_time(self, step: int, measured: float) -> float:
        """Seconds that step number `step` takes, counted from 0."""
        if self.step_seconds is None:
            return measured
        if isinstance(self.step_seconds, tuple):
            return self.step_seconds[step % len(self.step_seconds)]
        return float(self.step_seconds)


class Arrivals:
    """A stream's chunks on the clock; the learner's progress is stored in the cursor.

    >>> arrivals, cursor = Arrivals(Clock(rate=100, step_seconds=0.25), [10, 10, 10, 10]), Cursor()
    >>> ["missed" if arrivals.missed(k, cursor) else arrivals.learnt(k, cursor, measured=0.0)[0] for k in range(4)]
    [0.25, 'missed', 'missed', 0.25]
    """

    def __init__(self, clock: Clock, chunk_sizes: Sequence[int]) -> None:
        self.clock = clock
        self.cold = clock.step_seconds is None  # the first step of a process is slow, which is not the learner's fault
        self.times: NDArray[np.float64] = np.cumsum(chunk_sizes, dtype=np.float64) / clock.rate

    def missed(self, chunk: int, cursor: Cursor) -> bool:
        """Whether a chunk is lost by the time the learner could begin it."""
        pushed_out_by = chunk + self.clock.keep
        return pushed_out_by < len(self.times) and bool(self.times[pushed_out_by] < cursor.free_at - _SAME_TIME)

    def learnt(self, chunk: int, cursor: Cursor, measured: float) -> tuple[float, float]:
        """Advances the clock by a step; returns its seconds, and the lag from the chunk's arrival to its end."""
        seconds = self.clock.step_time(cursor.steps, measured)
        arrived = float(self.times[chunk])
        cursor.free_at = max(arrived, cursor.free_at) + seconds
        lag = cursor.free_at - arrived
        cursor.steps += 1
        cursor.lag_sum, cursor.lag_most = cursor.lag_sum + lag, max(cursor.lag_most, lag)
        return seconds, lag
