"""What of the service itself must survive a crash: counts, and results of requests by their idempotency keys."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prol.classes import Label

MAX_RECENT = 100


@dataclass(frozen=True)
class Key:
    """An idempotency key and the request's content, both as hashes."""

    name: str
    content: str

    @classmethod
    def of(cls, given: str, content: str) -> Key:
        return cls(digest(given.encode("ascii")), content)


def digest(*parts: bytes) -> str:
    """A hash of 128 bits that also depends on where each part ends."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.hexdigest()[:32]


def labels_digest(labels: Sequence[Label]) -> bytes:
    """Distinguishes text from integers: 1 is not "1"."""
    return digest(*(f"{type(label).__name__}:{label}".encode() for label in labels)).encode()


@dataclass
class Records:
    """What of the service itself must survive a crash. The field names are the keys in the checkpoint.

    `answered` and `correct` count predictions that were labelled later, `recent` both for the last such chunks.
    `answers` holds the results of requests with an idempotency key, by the key's hash, oldest first. `artifact`
    holds hashes of saved models that the service has written or read, `operations` the changes of classes since.
    `to_write_out`: older files hold a class that was removed.
    """

    images_learnt: int = 0
    answered: int = 0
    correct: int = 0
    recent: list[tuple[int, int]] = field(default_factory=list)
    answers: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    artifact: list[str] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    to_write_out: bool = False

    def copy(self) -> Records:
        """Independent except for the results in `answers`, which are never changed."""
        return dataclasses.replace(
            self,
            recent=list(self.recent),
            answers=dict(self.answers),
            artifact=list(self.artifact),
            operations=list(self.operations),
        )

    def remember(self, key: Key, result: dict[str, Any], max_keys: int) -> None:
        self.answers[key.name] = key.content, result
        self.forget_all_but(max_keys)

    def forget_all_but(self, keys: int) -> None:
        """Forgets the oldest results."""
        while len(self.answers) > keys:
            del self.answers[next(iter(self.answers))]

    def count_labelled(self, images: int, correct: int) -> None:
        if not images:
            return
        self.answered += images
        self.correct += correct
        self.recent = [*self.recent, (images, correct)][-MAX_RECENT:]

    def to_json(self) -> dict[str, Any]:
        answers = [[name, content, result] for name, (content, result) in self.answers.items()]
        return {part.name: getattr(self, part.name) for part in dataclasses.fields(self)} | {"answers": answers}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Records:
        answers = {name: (digested, result) for name, digested, result in content["answers"]}
        recent = [(images, correct) for images, correct in content["recent"]]
        # Services of 0.1.0 had a calibration of their own; the learner has one since.
        current = {name: value for name, value in content.items() if name != "novelty"}
        return cls(**(current | {"answers": answers, "recent": recent}))
