"""Jobs that change classes without learning: other names, two made one, one taken away."""

from __future__ import annotations

from typing import Protocol, cast

from prol.labels import Label
from prol.learner import Learner, Removal
from prol.serve.jobs import Answer, Desk, Job
from prol.serve.journal import Kind
from prol.serve.naming import shown
from prol.serve.pending import Pending
from prol.serve.refusals import Refusal


class ChangesClasses(Protocol):
    """The verbs of a learner that change its classes without learning."""

    def rename_class(self, old: Label, new: Label) -> None: ...

    def merge_classes(self, source: Label, into: Label) -> Removal: ...

    def remove_class(self, name: Label) -> Removal: ...


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
        _verbs(desk.learner).rename_class(self.old, self.new)
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
        return _told(_verbs(desk.learner).merge_classes(self.source, self.into))

    def committed(self) -> None:
        self._pending.rename(self.source, self.into)

    def event(self) -> tuple[Kind, str]:
        return "merged", f"{shown(self.source)} into {shown(self.into)}"


class Remove(Job):
    """A class is taken away."""

    def __init__(self, name: Label) -> None:
        super().__init__()
        self.name = name

    def apply(self, desk: Desk) -> Answer:
        _require(desk.learner, self.name)
        return _told(_verbs(desk.learner).remove_class(self.name))

    def event(self) -> tuple[Kind, str]:
        return "removed", shown(self.name)


def _verbs(learner: Learner) -> ChangesClasses:
    return cast(ChangesClasses, learner)


def _told(removal: Removal) -> Answer:
    return {"erased": list(removal.erased), "remains": list(removal.remains), "exact": removal.exact}


def _require(learner: Learner, name: Label) -> None:
    if name not in learner.row_of:
        message = f"There is no class {shown(name)}: GET /classes lists those there are, and 1 is not the text 1."
        raise Refusal(404, "unknown_class", message)
