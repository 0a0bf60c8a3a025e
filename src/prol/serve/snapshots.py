"""What readers see: a learner of their own in a committed state, replaced as a whole and never changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from prol.answers import Answer, ranked
from prol.labels import Label
from prol.learner import Learner, SavedState
from prol.serve.intake import Picture
from prol.serve.unknowns import Unknowns


@dataclass(frozen=True)
class Told:
    """The answers to one image, best first; how familiar it looks, and how strange that is among known images."""

    answers: list[Answer]
    familiarity: float | None
    unknown: float | None


class Snapshot:
    """Answers from one committed state, from several threads at a time."""

    def __init__(self, version: int, like: Learner, state: SavedState, novelty: dict[str, Any] | None) -> None:
        self.version = version
        self.classes: frozenset[Label] = frozenset(state[1]["classes"])
        self._unknowns = Unknowns(novelty)
        self._learner = type(like)(like.backbone, like.options, like.seed)
        self._learner.load_state(*state)
        # Whatever is solved only when asked is solved now, so that no client has to wait for it.
        self.ask([np.zeros((8, 8, 3), dtype=np.uint8)], top=1)

    def ask(self, images: Sequence[Picture], top: int) -> list[Told]:
        pictures = list(images)
        scores, familiarity = Unknowns.asked(self._learner, pictures)
        answers = ranked(scores, self._learner.classes, top)
        unknown = None if familiarity is None else self._unknowns.scores(familiarity)
        nothing = [None] * len(pictures)
        return [Told(*row) for row in zip(answers, familiarity or nothing, unknown or nothing, strict=True)]

    def familiarity(self, images: Sequence[Picture]) -> list[float] | None:
        """Of each image with what is learnt here; None where that cannot be told."""
        return Unknowns.familiarity(self._learner, list(images)) if self.classes else None


class Publisher:
    """A thread that makes snapshots of the newest commits, and rests after each as long as it has taken."""

    def __init__(self, first: Snapshot, turns: Turns, fail: Callable[[Exception], None]) -> None:
        self.current = first
        self._turns, self._fail = turns, fail
        self._offer: Callable[[], Snapshot] | None = None
        self._wake, self._stopped = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, name="prol-publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, make: Callable[[], Snapshot]) -> None:
        """A newer state to publish; one that was offered before and not begun yet is left out."""
        with self._wake:
            self._offer = make
            self._wake.notify()

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        while (make := self._next()) is not None:
            began = time.monotonic()
            try:
                with self._turns.take():
                    made = make()
            except Exception as error:  # readers keep what they have; the next commit is another chance
                self._fail(error)
            else:
                self.current = made
            took = time.monotonic() - began
            with self._wake:
                self._wake.wait_for(lambda: self._stopped, timeout=took)

    def _next(self) -> Callable[[], Snapshot] | None:
        with self._wake:
            self._wake.wait_for(lambda: self._stopped or self._offer is not None)
            offer, self._offer = self._offer, None
            return None if self._stopped else offer


class Turns:
    """On a GPU one thread at a time: steps that are captured there bear no company. On a CPU all at once."""

    def __init__(self, device_type: str) -> None:
        self._lock = threading.Lock() if device_type == "cuda" else None

    def take(self) -> AbstractContextManager[object]:
        return nullcontext() if self._lock is None else self._lock
