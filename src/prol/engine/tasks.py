"""When a task begins: at given boundaries, or by a rule where none are given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from prol.state import State


@dataclass
class TaskClock:
    """The current task: its number (-1 before the first), its first class row, and its steps so far.

    Once a boundary has been given, tasks begin at boundaries only and unseen classes join the current one. Until then
    an unseen class begins a task if the current one has at least `min_classes` classes and is at least `min_steps`
    steps old or `soft`, which a method may set; otherwise it joins the current task.
    """

    min_classes: int = 2
    min_steps: int = 50
    number: int = -1
    first_row: int = 0
    steps: int = 0
    bounded: bool = field(default=False, metadata={"key": "told"})
    """Whether a boundary has been given; files say "told"."""

    def __post_init__(self) -> None:
        self.soft: Callable[[], bool] = lambda: False

    @classmethod
    def declared(cls, state: State, min_classes: int, min_steps: int) -> TaskClock:
        """A clock whose fields are values of a learner's state."""
        clock = cls(min_classes, min_steps)
        state.scope("clock").fields(clock, rows=("first_row",), sums=("steps",))
        return clock

    def begins(self, classes: int, boundary: bool) -> bool:
        """Whether a boundary, or a class not among the `classes` known so far, begins a task.

        A boundary begins none while the current one is still empty.
        """
        self.bounded |= boundary
        if self.number < 0:
            return True
        if boundary:
            return self.steps > 0 or classes > self.first_row
        enough = classes - self.first_row >= self.min_classes
        return not self.bounded and enough and (self.steps >= self.min_steps or self.soft())

    def begin(self, classes: int) -> None:
        self.number, self.first_row, self.steps = self.number + 1, classes, 0
