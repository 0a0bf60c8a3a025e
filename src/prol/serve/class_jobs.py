"""Jobs that change classes without learning: other names, two made one, one taken away."""

from __future__ import annotations

from prol.labels import Label
from prol.learner import Learner, Removal
from prol.runs.operations import MERGED, REMOVED, RENAMED, operation, without_gone_names
from prol.serve.jobs import Answer, Desk, Job
from prol.serve.journal import Kind
from prol.serve.naming import shown
from prol.serve.pending import Pending
from prol.serve.refusals import Refusal


class Rename(Job):
    """Another name for a class; predictions that still wait for a label mean the new one."""

    def __init__(self, old: Label, new: Label, pending: Pending) -> None:
        super().__init__()
        self.old, self.new, self._pending = old, new, pending

    def apply(self, desk: Desk) -> Answer:
        _require(desk.learner, self.old)
        if self.new in desk.learner.row_of:
            message = f"There is a class {shown(self.new)} already: choose another name, or merge the two."
            raise Refusal(409, "name_taken", message)
        desk.learner.rename_class(self.old, self.new)
        _note(desk, RENAMED, self.new)
        return {"label": self.new}

    def committed(self) -> None:
        self._pending.rename(self.old, self.new)

    def event(self) -> tuple[Kind, str]:
        return "renamed", f"{shown(self.old)} to {shown(self.new)}"


class Merge(Job):
    """One class becomes part of another."""

    def __init__(self, source: Label, into: Label, pending: Pending) -> None:
        super().__init__()
        self.source, self.into, self._pending = source, into, pending

    def apply(self, desk: Desk) -> Answer:
        if self.source == self.into:
            raise Refusal(422, "same_class", "A class cannot be merged into itself: name another one.")
        _require(desk.learner, self.source)
        _require(desk.learner, self.into)
        merged = desk.learner.merge_classes(self.source, self.into)
        _note(desk, MERGED, self.into, merged.exact)
        return _told(merged)

    def committed(self) -> None:
        self._pending.rename(self.source, self.into)

    def event(self) -> tuple[Kind, str]:
        return "merged", f"{shown(self.source)} into {shown(self.into)}"


class Remove(Job):
    """A class is taken away, from older states that the service keeps too."""

    def __init__(self, name: Label) -> None:
        super().__init__()
        self.name = name

    def apply(self, desk: Desk) -> Answer:
        _require(desk.learner, self.name)
        removed = desk.learner.remove_class(self.name)
        _note(desk, REMOVED, exact=removed.exact)
        desk.records.to_write_out = True
        return _told(removed)

    def event(self) -> tuple[Kind, str]:
        return "removed", shown(self.name)


def _note(desk: Desk, what: str, name: Label | None = None, exact: bool | None = None) -> None:
    """A line for `operations.jsonl`, which the saved learner gets."""
    classes = desk.learner.classes
    lines = [*desk.records.operations, operation(what, len(classes), name, exact)]
    desk.records.operations = without_gone_names(lines, classes)


def _told(removal: Removal) -> Answer:
    return {"erased": list(removal.erased), "remains": list(removal.remains), "exact": removal.exact}


def _require(learner: Learner, name: Label) -> None:
    if name not in learner.row_of:
        message = f"There is no class {shown(name)}: GET /classes lists those there are, and 1 is not the text 1."
        raise Refusal(404, "unknown_class", message)
