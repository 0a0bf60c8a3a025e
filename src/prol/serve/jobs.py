"""What the writer is given to do: each job changes the learner and the records, or is refused and changes nothing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from prol.labels import Label
from prol.learner import Learner
from prol.serve.intake import Picture
from prol.serve.journal import Kind
from prol.serve.pending import Waiting
from prol.serve.records import Key, Records

Answer = dict[str, Any]


class Observer(Protocol):
    """Takes note of images and their labels before they are learnt."""

    def images(self, images: Sequence[Picture], labels: Sequence[Label]) -> None: ...

    def predicted(self, waiting: Sequence[Waiting], labels: Sequence[Label]) -> None: ...


@dataclass
class Desk:
    """What lies before the writer while it works on a group of jobs."""

    learner: Learner
    records: Records
    observer: Observer


class Job(ABC):
    """One request to change something. `done` gets its answer, or why there is none."""

    images = 0
    """How many it learns, or hopes to."""

    def __init__(self, key: Key | None = None) -> None:
        self.key = key
        self.done: Future[Answer] = Future()

    @abstractmethod
    def apply(self, desk: Desk) -> Answer:
        """Does it; the writer adds the version and the number of classes to the answer."""

    @abstractmethod
    def event(self) -> tuple[Kind, str]:
        """What was done, in words."""

    def committed(self) -> None:  # noqa: B027
        """It is durable now."""

    def undo(self) -> None:  # noqa: B027
        """Gives back what was taken from elsewhere than the desk: the job has failed, and may come again."""
