"""What learners have in common that divide what they learn into tasks, told of them or not."""

from __future__ import annotations

from typing import ClassVar

from prol.labels import Label
from prol.learner import Learner
from prol.parts.tasks import TaskClock


class TaskLearner(Learner):
    """A task begins where one is told of, or with classes not seen before, as the clock says."""

    uses_tasks: ClassVar[bool] = True
    clock: TaskClock

    def _meet(self, names: list[Label]) -> None:
        if self.clock.begins_with_unseen_class(len(self.classes), soft=False):
            self._start_task()
        self._register(names)

    def _begin_task(self, names: list[Label]) -> None:
        if self.clock.begins_at_boundary(len(self.classes)):
            self._start_task()
        self._register(names)

    def _start_task(self) -> None:
        self.clock.begin(len(self.classes))
