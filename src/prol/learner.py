"""The learner: two verbs, `learn` and `predict`, and what a method implements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from prol.backbones.base import Pixels
from prol.classes import Label, read_labels, require_distinct, require_text
from prol.classes import Removal as Removal
from prol.model import Footprint as Footprint
from prol.model import SavedState as SavedState
from prol.options import Count, Options
from prol.prediction import InputOptions as InputOptions
from prol.prediction import Predictor
from prol.prequential.statistics import SLOPE, ids_of
from prol.state import State as State
from prol.tables import Amount as Amount

if TYPE_CHECKING:
    from prol import Evaluation


@dataclass(frozen=True)
class TaskOptions(Options):
    """When a task begins where no boundaries are given."""

    task_min_classes: Count = 2
    """Minimum number of classes in a task before an unseen class begins another one."""
    task_min_steps: Count = 50
    """Minimum number of steps in a task before an unseen class begins another one."""


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
    def declared(cls, state: State, min_classes: int = min_classes, min_steps: int = min_steps) -> TaskClock:
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


class Learner(Predictor):
    """Learns from chunks and predicts at any moment.

    A method names its `Options` and implements `build`, which declares what it stores, `update` and `score`; `encode`
    returns the backbone's features unless it says otherwise. Prediction of any number of images (`Predictor`), and
    growth, saving, rollback, class operations, merging and footprint (`Model`), follow.
    """

    additive: ClassVar[bool] = False
    """Whether what it learns are sums, so that learners can be merged."""
    uses_tasks: ClassVar[bool] = False
    """Whether it divides the stream into tasks, by its own rule where no boundaries are given."""
    several_steps: ClassVar[bool] = False
    """Whether a chunk takes several steps, so that what the first ones overwrite must be restored if a later one fails.
    Such a method calls `stored.overwrites` before the first."""
    error_slope: ClassVar[tuple[float, float]] = SLOPE
    """Mean and standard deviation of β where the error falls as n^-β with n images per class: what `learning_curve`
    expects before there is evidence."""
    clock: TaskClock | None = None

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        """Learns from encoded images `[B, ...]` of the class rows `[B]`; refuses them before it changes anything."""
        raise NotImplementedError

    def subtract(self, encoded: Tensor, rows: Tensor) -> Sequence[str]:  # noqa: ARG002
        """Subtracts encoded images of class rows `[B]` from the sums they are in; returns what still holds a trace."""
        raise ValueError(
            f"{self.name} cannot unlearn images: what it learnt from them cannot be separated from the rest"
        )

    def end_task(self) -> None:
        """The current task ends, if there is one; call `stored.overwrites` before overwriting what is stored."""

    def start_task(self) -> None:
        """A task has begun; `clock` says which."""

    def learn(self, images: Any, labels: Any, ids: Any = None) -> None:
        """One update on one chunk. A chunk that is refused, with a ValueError, changes nothing.

        `ids` name the images in `label_issues`, after `enable_prequential(record_ids=True)`: paths, texts or whole
        numbers. Without them an image has its path, if one was given, or its number in the stream, from 0.
        """
        pixels, names = self.read_chunk(images, labels)
        given = ids_of(images, ids, len(names), self.calibration.images, self.prequential)
        new = [name for name in dict.fromkeys(names) if name not in self.row_of]
        require_text(new)
        due = self.calibration.due
        observed = self.foresee(pixels, names) if due else None
        predicted = None if self.prequential is None else self.predict_chunk(pixels, names)
        random = self.random.get_state()
        record = None
        if new or self.several_steps or self.undo_record.enabled:
            self.flush()
            record = self.stored.record()
        try:
            if record is not None:
                self.undo_record.fill(record, [self.row_of[name] for name in names if name in self.row_of], random)
            if new:
                self.arrive(new)
            rows = torch.tensor([self.row_of[name] for name in names])
            self.learn_pixels(pixels, rows)
            if record is not None:
                self.flush()  # an update that failed must be taken back now, its new classes too
            self.calibration.learnt(len(names), self.hindsight() if observed is None else observed, due)
            if self.prequential is not None:
                self.prequential.add(rows, predicted, given)
        except Exception:
            self._return_to(record, random)
            raise
        finally:
            self.stored.close()
            self._latest.clear()

    @torch.no_grad()
    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        """Learns from images in the caller's memory, of which only copies may be stored, and class rows `[B]` there."""
        rows = self.backbone.upload(rows)
        self.update(self.encode(self.training_input(pixels)), rows)

    def learn_folder(self, path: str | Path, chunk: int = 10, seed: int = 0, **options: Any) -> Evaluation | None:
        """Learns `path/CLASS/*.jpg` in one pass with progress, a fifth held out; returns the `Evaluation` on that.

        Options are those of `prol.verbs.learn_folder`.
        """
        import prol

        return prol.learn_folder(self, path, chunk, seed, **options)

    def boundary(self, next_classes: Any = None) -> None:
        """A hint that a task begins; it may announce the task's classes, which fixes the order of their rows."""
        announced = [] if next_classes is None else read_labels(next_classes)
        require_distinct(announced)
        require_text(announced)
        self.flush()
        self.undo_record.forget()
        self.arrive([name for name in announced if name not in self.row_of], boundary=True)
        self._latest.clear()

    def arrive(self, names: list[Label], boundary: bool = False) -> None:
        """Unseen classes arrive in a chunk or, if any are announced, at a boundary; a task may begin."""
        if self.clock is not None and self.clock.begins(len(self.classes), boundary):
            self.end_task()
            self.clock.begin(len(self.classes))
            self.start_task()
        self.register(names)

    def unlearn(self, images: Any, labels: Any) -> Removal:
        """Subtracts images that were learnt, where sums allow it; classes without any image left are removed.

        ValueError where the method cannot. Only the number of images is checked, not whether just these were learnt.
        """
        pixels, names = self.read_chunk(images, labels)
        rows = torch.tensor([self.known_row(name) for name in names])
        gone = self._emptied(rows)
        augment = getattr(self.options, "augment", "none")
        if self.additive and augment != "none":
            raise ValueError(
                f"with augment={augment} images cannot be unlearnt: which crop of each was learnt is not stored"
            )
        with torch.no_grad():
            encoded = self.encoded(pixels) if self.additive else torch.empty(0)
            traces = self.subtract(encoded, self.backbone.upload(rows))
        return self._without_images(len(names), gone, traces)
