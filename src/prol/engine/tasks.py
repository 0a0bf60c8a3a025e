"""When a task begins: at given boundaries, or by a rule where none are given."""

from __future__ import annotations

from dataclasses import dataclass, field

from prol.state import State


@dataclass
class TaskClock:
    """The current task: its number (-1 before the first), its first class row, and its steps so far.

    Once a boundary has been given, tasks begin at boundaries only and unseen classes join the current one. Until then
    an unseen class begins a task if the current one has at least `min_classes` classes and is in soft mode or at least
    `min_steps` steps old; otherwise it joins the current task.
    """

    min_classes: int = 2
    min_steps: int = 50
    number: int = -1
    first_row: int = 0
    steps: int = 0
    bounded: bool = field(default=False, metadata={"key": "told"})
    """Whether a boundary has been given; files say "told"."""

    @classmethod
    def declared(cls, state: State, min_classes: int, min_steps: int) -> TaskClock:
        """A clock whose fields are values of a learner's state."""
        clock = cls(min_classes, min_steps)
        state.scope("clock").fields(clock, rows=("first_row",), sums=("steps",))
        return clock

    def begins_with_unseen_class(self, classes: int, soft: bool) -> bool:
        """Whether a class not among the `classes` known so far begins a task."""
        if self.number < 0:
            return True
        enough = classes - self.first_row >= self.min_classes
        return not self.bounded and enough and (soft or self.steps >= self.min_steps)

    def begins_at_boundary(self, classes: int) -> bool:
        """Whether a boundary begins a task: not when the current one is still empty."""
        self.bounded = True
        return self.number < 0 or self.steps > 0 or classes > self.first_row

    def begin(self, classes: int) -> None:
        self.number, self.first_row, self.steps = self.number + 1, classes, 0
