"""The progress of a run: all that is needed, besides the learner's state, to resume it."""

from __future__ import annotations

from dataclasses import dataclass, field


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
