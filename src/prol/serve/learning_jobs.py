"""Jobs that learn: images with their labels, and labels of images that were predicted before."""

from __future__ import annotations

from collections.abc import Sequence

from prol.labels import Label
from prol.serve.budget import Share
from prol.serve.intake import Picture, decode_images
from prol.serve.jobs import Answer, Desk, Job
from prol.serve.journal import Kind
from prol.serve.naming import shown
from prol.serve.pending import Pending, Waiting
from prol.serve.records import Key
from prol.serve.refusals import Refusal
from prol.serve.settings import Limits


class Learn(Job):
    """One chunk."""

    def __init__(self, pictures: Sequence[Picture], labels: Sequence[Label], key: Key | None) -> None:
        super().__init__(key)
        self.pictures, self.labels, self.images = list(pictures), list(labels), len(pictures)

    def apply(self, desk: Desk) -> Answer:
        desk.observer.images(self.pictures, self.labels)
        desk.learner.learn(self.pictures, self.labels)
        desk.records.images_learnt += self.images
        return {"learnt": self.images, "repeated": False}

    def event(self) -> tuple[Kind, str]:
        return "learnt", f"{_images(self.images)} of {_classes(self.labels)}"


class LateLabels(Job):
    """Labels of waiting images, learnt as one chunk; also counts how many were predicted rightly."""

    def __init__(
        self,
        ids: Sequence[str],
        labels: Sequence[Label],
        pending: Pending,
        key: Key | None,
        limits: Limits,
        share: Share,
    ) -> None:
        super().__init__(key)
        self.ids, self.labels, self._pending = list(ids), list(labels), pending
        self._limits, self._share = limits, share
        self.images, self._learnt = len(ids), list(labels)
        self._claimed: dict[str, tuple[float, Waiting]] = {}

    def apply(self, desk: Desk) -> Answer:
        self._claimed = self._pending.claim(self.ids)
        found = [position for position, name in enumerate(self.ids) if name in self._claimed]
        if not found:
            message = "None of these ids is known: they were used, have expired, or were never given. Predict again."
            raise Refusal(404, "unknown_ids", message)
        waiting = [self._claimed[self.ids[position]][1] for position in found]
        labels = [self.labels[position] for position in found]
        desk.observer.predicted(waiting, labels)
        desk.learner.learn(decode_images([one.data for one in waiting], self._limits, self._share), labels)
        self.images, self._learnt = len(found), labels
        correct = sum(one.predicted == label for one, label in zip(waiting, labels, strict=True))
        desk.records.images_learnt += self.images
        desk.records.count_labelled(self.images, correct)
        # Positions will do to remember unknown ids: whoever asks again sends the same ids.
        unknown = sorted(set(range(len(self.ids))) - set(found))
        return {"learnt": self.images, "repeated": False, "correct": correct, "unknown": unknown}

    def undo(self) -> None:
        self._pending.give_back(self._claimed)
        self._claimed = {}

    def with_ids(self, answer: Answer) -> Answer:
        """The answer with ids for positions."""
        rest = {name: value for name, value in answer.items() if name != "unknown"}
        return rest | {"unknown_ids": [self.ids[position] for position in answer["unknown"]]}

    def event(self) -> tuple[Kind, str]:
        return "labelled", f"{_images(self.images)} of {_classes(self._learnt)}"


def _images(count: int) -> str:
    return "1 image" if count == 1 else f"{count} images"


def _classes(labels: Sequence[Label]) -> str:
    distinct = list(dict.fromkeys(labels))
    return shown(distinct[0]) if len(distinct) == 1 else f"{len(distinct)} classes"
