"""What of the service itself must survive: kept in one file with the learner, so that the two can never disagree."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prol.labels import Label

MOST_RECENT = 100


@dataclass(frozen=True)
class Key:
    """An idempotency key and the request's content, both as hashes."""

    name: str
    content: str

    @classmethod
    def of(cls, given: str, content: str) -> Key:
        return cls(digest(given.encode("ascii")), content)


@dataclass
class Records:
    """Counts, remembered answers, and what the artifact was when the service last wrote or read it.

    `artifact` holds the hashes of models that the service knows to be its own; `answers` are by the key's hash, oldest
    first; `recent` are the sizes and the right answers of the last labelled chunks; `operations` is what was done to
    classes since the saved learner was written; `to_write_out` says that older states hold what is to be forgotten.
    """

    images_learnt: int = 0
    answered: int = 0
    correct: int = 0
    recent: list[tuple[int, int]] = field(default_factory=list)
    answers: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    novelty: dict[str, Any] | None = None
    artifact: list[str] = field(default_factory=list)
    operations: list[dict[str, Any]] = field(default_factory=list)
    to_write_out: bool = False

    def copy(self) -> Records:
        """Independent but for remembered answers, which nobody changes."""
        return replace(
            self,
            recent=list(self.recent),
            answers=dict(self.answers),
            artifact=list(self.artifact),
            operations=list(self.operations),
        )

    def remember(self, key: Key, answer: dict[str, Any], most: int) -> None:
        self.answers[key.name] = key.content, answer
        while len(self.answers) > most:
            del self.answers[next(iter(self.answers))]

    def count_labelled(self, images: int, correct: int) -> None:
        self.answered += images
        self.correct += correct
        self.recent = [*self.recent, (images, correct)][-MOST_RECENT:]

    def to_json(self) -> dict[str, Any]:
        return {
            "images_learnt": self.images_learnt,
            "answered": self.answered,
            "correct": self.correct,
            "recent": self.recent,
            "answers": [[name, content, answer] for name, (content, answer) in self.answers.items()],
            "novelty": self.novelty,
            "artifact": self.artifact,
            "operations": self.operations,
            "to_write_out": self.to_write_out,
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Records:
        answers = {name: (digested, answer) for name, digested, answer in content["answers"]}
        recent = [(images, correct) for images, correct in content["recent"]]
        return cls(**(content | {"answers": answers, "recent": recent}))


def digest(*parts: bytes) -> str:
    """128 bits that tell contents apart, wherever one part ends and the next begins."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "big"))
        total.update(part)
    return total.hexdigest()[:32]


def labels_digest(labels: Sequence[Label]) -> bytes:
    """Text and numbers apart: 1 is not "1"."""
    return digest(*(f"{type(label).__name__}:{label}".encode() for label in labels)).encode()
