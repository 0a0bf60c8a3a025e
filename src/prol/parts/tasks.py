"""When a task begins: told from outside, or by a rule where nobody tells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class TaskClock:
    """The current task: its number (-1 before the first), its first class row, and its steps so far.

    Once `boundary` has been called, tasks begin at boundaries only and unseen classes join the current one. Until then
    an unseen class begins a task if the current one has at least `min_classes` classes and is settled, that is in soft
    mode or `min_steps` steps old; otherwise it joins the current task.
    """

    min_classes: int = 2
    min_steps: int = 50
    number: int = -1
    first_row: int = 0
    steps: int = 0
    told: bool = False

    def begins_with_unseen_class(self, classes: int, soft: bool) -> bool:
        """Whether a class not among the `classes` met so far begins a task."""
        if self.number < 0:
            return True
        gathered = classes - self.first_row >= self.min_classes
        return not self.told and gathered and (soft or self.steps >= self.min_steps)

    def begins_at_boundary(self, classes: int) -> bool:
        """Whether a boundary begins a task: not when the current one is still empty."""
        self.told = True
        return self.number < 0 or self.steps > 0 or classes > self.first_row

    def begin(self, classes: int) -> None:
        self.number, self.first_row, self.steps = self.number + 1, classes, 0
