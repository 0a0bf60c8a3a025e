"""Tells of losses that were not finite, on a GPU without waiting for each step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping

from prol.parts.later import Later
from prol.parts.losses import complain_of_loss

LAG = 2
"""Steps that may be under way while the host prepares the next one."""


class LossWatch:
    """Is told the numbers of each step; raises where their "total" was not finite.

    The step itself must have changed nothing then. On a CPU that is told at once. On a GPU it is looked at `LAG` steps
    later, or when `settle` is called.
    """

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self._under_way: deque[tuple[Later, int]] = deque()
        self.last_good: Mapping[str, float] = {}
        """The numbers of the last step that was looked at and was finite."""

    def note(self, numbers: Later, step: int, at_once: bool) -> None:
        if not at_once:
            self._under_way.append((numbers, step))
        elif not math.isfinite(numbers["total"]):
            complain_of_loss(step, self.lr)
        else:
            self.last_good = numbers

    def poll(self) -> None:
        """To be called before each step."""
        while len(self._under_way) >= LAG:
            self._look()

    def settle(self) -> None:
        """To be called before anything is read from the learner."""
        while self._under_way:
            self._look()

    def restart(self, last_good: Mapping[str, float]) -> None:
        """Drops what is under way, which belongs to another state."""
        self._under_way.clear()
        self.last_good = last_good

    def _look(self) -> None:
        numbers, step = self._under_way.popleft()
        if not math.isfinite(numbers["total"]):
            raise ValueError(
                f"the loss was not finite at step {step} of a task, in a chunk handed over before; nothing was "
                f"learnt from that chunk, nor from one handed over just now: lower lr={self.lr}"
            )
        self.last_good = numbers
