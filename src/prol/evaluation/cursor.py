"""How far a run has come: all that is needed, besides the learner's state, to go on from there."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Cursor:
    """Counts of what is behind us; plain numbers and lists, so that it can be written as JSON.

    `correct[i][t]` of `total[i][t]` test images of task i were right after task t.
    """

    chunks: int = 0
    tasks_begun: int = 0
    tasks_evaluated: int = 0
    correct: list[list[int]] = field(default_factory=list)
    total: list[list[int]] = field(default_factory=list)
    skipped_train: int = 0
    skipped_test: list[int] = field(default_factory=list)

    def note_accuracy(self, task: int, counts: list[tuple[int, int]]) -> None:
        """Takes in (correct, total) of every task seen so far, after `task`."""
        for row in range(task + 1):
            if row == len(self.correct):
                self.correct.append([0] * task)
                self.total.append([0] * task)
            self.correct[row].append(counts[row][0])
            self.total[row].append(counts[row][1])
        self.tasks_evaluated = task + 1
