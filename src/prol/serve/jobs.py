"""Jobs for the writer: learning, late labels, undoing, and renaming, merging and removing classes.

Each job changes the learner and the records, or raises and changes nothing that the writer cannot roll back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from prol.classes import Label
from prol.learner import Learner, Removal
from prol.runs.format import MERGED, REMOVED, RENAMED, operation, without_gone_names
from prol.serve.errors import RequestError
from prol.serve.monitoring import Kind
from prol.serve.pending import Pending, PendingImage
from prol.serve.records import Key, Records
from prol.serve.settings import Limits
from prol.serve.uploads import Pixels, Reservation, decode_images

Result = dict[str, Any]


@dataclass
class LastChunk:
    """What the service recorded before the last chunk, in memory only; the learner knows whether it can be undone."""

    images: int = 0
    records: Records = field(default_factory=Records)


@dataclass
class WriteContext:
    """What jobs change."""

    learner: Learner
    records: Records
    last: LastChunk

    def learn(self, images: Sequence[Pixels], labels: Sequence[Label]) -> None:
        """Learns one chunk, and remembers the records as they were before it."""
        self.learner.learn(images, labels)
        self.last.images, self.last.records = len(images), self.records.copy()
        self.records.images_learnt += len(images)

    def undo(self) -> int:
        """Undoes the last chunk; returns how many images it had."""
        self.learner.undo()
        before = self.last.records
        self.records.images_learnt, self.records.recent = before.images_learnt, before.recent
        self.records.answered, self.records.correct = before.answered, before.correct
        return self.last.images


class Job(ABC):
    """One request to change something. `done` resolves to its result or its error."""

    images = 0
    """How many images it learns."""
    only_learns = False
    """Whether it learns a chunk and changes nothing else."""

    def __init__(self, key: Key | None = None) -> None:
        self.key = key
        self.done: Future[Result] = Future()

    @abstractmethod
    def apply(self, context: WriteContext) -> Result:
        """Does the work; the writer adds the version and the number of classes to the result."""

    @abstractmethod
    def event(self) -> tuple[Kind, str]:
        """What was done, for the list of recent events."""

    def committed(self) -> None:  # noqa: B027
        """Called when the work is durable."""

    def roll_back(self) -> None:  # noqa: B027
        """Gives back what was taken from outside the context: the job has failed, and may be sent again."""


class Learn(Job):
    """Learns one chunk."""

    only_learns = True

    def __init__(self, pictures: Sequence[Pixels], labels: Sequence[Label], key: Key | None) -> None:
        super().__init__(key)
        self.pictures, self.labels, self.images = list(pictures), list(labels), len(pictures)

    def apply(self, context: WriteContext) -> Result:
        context.learn(self.pictures, self.labels)
        return {"learnt": self.images, "repeated": False}

    def event(self) -> tuple[Kind, str]:
        return "learnt", _described(self.labels)


class LateLabels(Job):
    """Learns pending images as one chunk, now that their labels are known, and counts the correct predictions."""

    only_learns = True

    def __init__(
        self,
        ids: Sequence[str],
        labels: Sequence[Label],
        pending: Pending,
        key: Key | None,
        limits: Limits,
        memory: Reservation,
    ) -> None:
        super().__init__(key)
        self.ids, self.labels, self._pending = list(ids), list(labels), pending
        self._limits, self._memory = limits, memory
        self.images, self._learnt = len(ids), list(labels)
        self._claimed: dict[str, tuple[float, PendingImage]] = {}

    def apply(self, context: WriteContext) -> Result:
        self._claimed = self._pending.claim(self.ids)
        found = [position for position, name in enumerate(self.ids) if name in self._claimed]
        if not found:
            message = "None of these ids is known: they were used, have expired, or never existed. Predict again."
            raise RequestError(404, "unknown_ids", message)
        images = [self._claimed[self.ids[position]][1] for position in found]
        labels = [self.labels[position] for position in found]
        context.learn(decode_images([one.data for one in images], self._limits, self._memory), labels)
        self.images, self._learnt = len(found), labels
        # Without any class there was no prediction that could be right or wrong.
        pairs = zip(images, labels, strict=True)
        predicted = [one.predicted == label for one, label in pairs if one.predicted is not None]
        correct = sum(predicted)
        context.records.count_labelled(len(predicted), correct)
        # Positions suffice to remember unknown ids: a repeated request has the same ids.
        unknown = sorted(set(range(len(self.ids))) - set(found))
        return {"learnt": self.images, "repeated": False, "correct": correct, "unknown": unknown}

    def roll_back(self) -> None:
        self._pending.give_back(self._claimed)
        self._claimed = {}

    def with_ids(self, result: Result) -> Result:
        """The result with the unknown ids themselves."""
        return result | {"unknown_ids": [self.ids[position] for position in result["unknown"]]}

    def event(self) -> tuple[Kind, str]:
        return "labelled", _described(self._learnt)


class Undo(Job):
    """Undoes the last chunk, and the service's counts of it."""

    undone = 0

    def apply(self, context: WriteContext) -> Result:
        try:
            self.undone = context.undo()
        except ValueError:
            message = (
                "There is nothing to undo: only the last chunk can be undone, if its record fits into memory, and not "
                "after a change of classes, a failed request or a restart."
            )
            raise RequestError(409, "nothing_to_undo", message) from None
        return {"undone": self.undone, "repeated": False}

    def event(self) -> tuple[Kind, str]:
        return "undone", f"{self.undone} {'image' if self.undone == 1 else 'images'}"


class Rename(Job):
    """Renames a class; pending predictions of it count under the new name."""

    def __init__(self, old: Label, new: Label, pending: Pending) -> None:
        super().__init__()
        self.old, self.new, self._pending = old, new, pending

    def apply(self, context: WriteContext) -> Result:
        _require_class(context.learner, self.old)
        if self.new in context.learner.classes:
            message = f"There is a class {_shown(self.new)} already: choose another name, or merge the two."
            raise RequestError(409, "name_taken", message)
        context.learner.rename_class(self.old, self.new)
        _record(context, RENAMED, self.new)
        return {"label": self.new}

    def committed(self) -> None:
        self._pending.rename(self.old, self.new)

    def event(self) -> tuple[Kind, str]:
        return "renamed", f"{_shown(self.old)} to {_shown(self.new)}"


class Merge(Job):
    """Merges a class into another one."""

    def __init__(self, source: Label, into: Label, pending: Pending) -> None:
        super().__init__()
        self.source, self.into, self._pending = source, into, pending

    def apply(self, context: WriteContext) -> Result:
        if self.source == self.into:
            raise RequestError(422, "same_class", "A class cannot be merged into itself: name another one.")
        _require_class(context.learner, self.source)
        _require_class(context.learner, self.into)
        merged = context.learner.merge_classes(self.source, self.into)
        _record(context, MERGED, self.into, merged.exact)
        return _removal(merged)

    def committed(self) -> None:
        self._pending.rename(self.source, self.into)

    def event(self) -> tuple[Kind, str]:
        return "merged", f"{_shown(self.source)} into {_shown(self.into)}"


class Remove(Job):
    """Removes a class, from older files of the service too."""

    def __init__(self, name: Label) -> None:
        super().__init__()
        self.name = name

    def apply(self, context: WriteContext) -> Result:
        _require_class(context.learner, self.name)
        removed = context.learner.remove_class(self.name)
        _record(context, REMOVED, exact=removed.exact)
        context.records.to_write_out = True
        return _removal(removed)

    def event(self) -> tuple[Kind, str]:
        return "removed", _shown(self.name)


def _require_class(learner: Learner, name: Label) -> None:
    if name not in learner.classes:
        message = f'There is no class {_shown(name)}: GET /classes lists the classes, and 1 is not "1".'
        raise RequestError(404, "unknown_class", message)


def _record(context: WriteContext, what: str, name: Label | None = None, exact: bool | None = None) -> None:
    """Adds a line for `operations.jsonl`, which the saved learner gets."""
    classes = context.learner.classes
    lines = [*context.records.operations, operation(what, len(classes), name, exact)]
    context.records.operations = without_gone_names(lines, classes)


def _removal(removal: Removal) -> Result:
    return {"erased": list(removal.erased), "remains": list(removal.remains), "exact": removal.exact}


def _described(labels: Sequence[Label]) -> str:
    distinct = list(dict.fromkeys(labels))
    classes = _shown(distinct[0]) if len(distinct) == 1 else f"{len(distinct)} classes"
    return f"{len(labels)} {'image' if len(labels) == 1 else 'images'} of {classes}"


def _shown(label: Label) -> str:
    text = repr(label)
    return text if len(text) <= 60 else f"{text[:57]}..."
