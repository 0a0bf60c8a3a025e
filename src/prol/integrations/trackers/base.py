"""What all trackers have in common: when they are told what, and that none of them ever stops a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import ClassVar

from prol.evaluation import Event, Finished
from prol.integrations.trackers.readings import Readings, final_numbers
from prol.runs import Listener, RunInView

EVERY = 10
"""Chunks from one telling of the learner's own numbers to the next."""
MOST_WAITING = 2
"""Steps whose numbers may still be on their way from the device."""


class Book(ABC):
    """Where one run's numbers are written down: a run of TensorBoard, Weights & Biases or MLflow."""

    @abstractmethod
    def last_steps(self) -> dict[str, int]:
        """The last step at which each number was written before, where a run goes on."""

    @abstractmethod
    def write(self, step: int, numbers: Mapping[str, float]) -> None: ...

    @abstractmethod
    def conclude(self, step: int, numbers: Mapping[str, float]) -> None:
        """What the whole run has come to."""

    @abstractmethod
    def close(self, finished: bool) -> None: ...


class Tracker(ABC):
    """Opens a book for each run that it follows. It holds settings only, so that it can go to another process.

    Args:
        every: chunks from one telling of the learner's own numbers to the next.
    """

    name: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, every: int = EVERY) -> None:
        if every < 1:
            raise ValueError(f"track-every must be at least 1 chunk, got {every}")
        if find_spec(self.package) is None:
            raise ValueError(f"tracking by {self.name} needs {self.package}: pip install 'prol[{self.name}]'")
        self.every = every

    @abstractmethod
    def open(self, run: RunInView) -> Book:
        """A new book, or the one of before where the run goes on."""

    @contextmanager
    def follow(self, run: RunInView) -> Iterator[Listener]:
        session = _Session(self, run)
        try:
            yield session
        except BaseException:
            session.close(finished=False)
            raise
        session.close(finished=True)


class _Session:
    """One run followed by one tracker. The first failure is told and is the last: the run does not depend on it."""

    def __init__(self, tracker: Tracker, run: RunInView) -> None:
        self.name, self.run, self.readings = tracker.name, run, Readings(run, tracker.every)
        self.waiting: deque[tuple[int, Mapping[str, float]]] = deque()
        self.book: Book | None = None
        self.last: dict[str, int] = {}
        with self._forgiven():
            self.book = tracker.open(run)
            self.last = self.book.last_steps()

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds
        with self._forgiven():
            if self.book is None:
                return
            self.waiting.extend((self.readings.step, numbers) for numbers in self.readings.read(event))
            self._write(all_of_them=isinstance(event, Finished))
            if isinstance(event, Finished):
                new = self._new(self.readings.step, final_numbers(event.result))
                if new:
                    self.book.conclude(self.readings.step, new)

    def close(self, finished: bool) -> None:
        with self._forgiven():
            if self.book is not None:
                self._write(all_of_them=True)
                book, self.book = self.book, None
                book.close(finished)

    def _write(self, all_of_them: bool) -> None:
        """In the order in which they came; on a GPU the last steps' numbers may have to wait."""
        while self.waiting and (all_of_them or len(self.waiting) > MOST_WAITING or _is_known(self.waiting[0][1])):
            step, numbers = self.waiting.popleft()
            new = self._new(step, numbers)
            if new and self.book is not None:
                self.book.write(step, new)
                self.last |= dict.fromkeys(new, step)

    def _new(self, step: int, numbers: Mapping[str, float]) -> dict[str, float]:
        """Those that were not written before, by this process or by one that was stopped."""
        return {name: value for name, value in numbers.items() if step > self.last.get(name, -1)}

    @contextmanager
    def _forgiven(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            words = " ".join(str(error).split())[:300] or type(error).__name__
            self.run.warn(f"tracking by {self.name} has stopped, the run goes on without it: {words}")
            book, self.book = self.book, None
            self.waiting.clear()
            if book is not None:
                with suppress(Exception):
                    book.close(finished=False)


def _is_known(numbers: Mapping[str, float]) -> bool:
    return bool(getattr(numbers, "ready", True))
