"""Snapshots: independent learners in a committed state, from which predictions are computed while the writer learns."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from prol.classes import Label
from prol.learner import Learner, SavedState
from prol.ranking import RankedLabel, ranked
from prol.serve.uploads import Pixels

UNASKED = 9
"""Rest after a snapshot, in times of what it took, while chunks are learnt and nobody predicts."""
LONGEST_PAUSE = 1.0
"""Seconds without a new chunk after which learning has paused."""
EXACT_AFTER = 5.0
"""The same for an exact snapshot: the next update has to wait for one that has begun."""


@dataclass(frozen=True)
class ImagePrediction:
    """The prediction for one image: labels, best first, and the unknown-class score.

    `unknown` is None where the method has no familiarity, or before enough images were observed.
    """

    labels: list[RankedLabel]
    unknown: float | None

    @property
    def best(self) -> Label | None:
        return self.labels[0].label if self.labels else None


class Snapshot:
    """A learner in one committed state, never changed. Any number of threads may use it at a time.

    With an `earlier` one it takes over what that has solved, if that makes hardly a difference: then it is not `exact`.
    """

    def __init__(self, version: int, state: SavedState, like: Learner, earlier: Snapshot | None = None) -> None:
        self.version = version
        self._learner = type(like)(like.backbone, like.options, like.seed)
        self._learner.load_state(*state)
        self.exact = earlier is None or not self._learner.follow(earlier._learner)
        # Solves now what the method would solve at the first prediction, so that no client waits for it.
        self.predict([np.zeros((8, 8, 3), dtype=np.uint8)], top=1)

    def predict(self, images: Sequence[Pixels], top: int) -> list[ImagePrediction]:
        scores, familiarity = self._learner.predict_with_familiarity(list(images))
        labels = ranked(scores, self._learner.classes, top, self._learner.probable(scores))
        unknown = None if familiarity is None else self._learner.calibration.unknown(familiarity)
        shares = [None] * len(images) if unknown is None else unknown.tolist()
        return [ImagePrediction(*row) for row in zip(labels, shares, strict=True)]


class Publisher:
    """A thread that replaces the current snapshot by newer ones.

    `make` returns one of the newest committed state, which may take over what an earlier one has solved.
    After each it rests as long as that one took, so that it takes at most half of a processor. While chunks are learnt
    and nobody predicts, it takes at most a tenth: it waits until learning pauses. Then an exact one follows.
    """

    def __init__(
        self,
        make: Callable[[Snapshot | None], Snapshot],
        device_lock: AbstractContextManager[object],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.current = make(None)
        self._make, self._device_lock, self._on_error = make, device_lock, on_error
        self._is_offered = self._failed = False
        self._offered, self._ended, self._took, self._asked = 0.0, 0.0, 0.0, False
        self._wake, self._stopped = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, name="prol-publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self) -> None:
        """There is a newer state to publish."""
        with self._wake:
            self._is_offered, self._failed, self._offered = True, False, time.monotonic()
            self._wake.notify()

    def ask(self) -> Snapshot:
        """The current snapshot, for a prediction; a newer one is made soon if there is any."""
        with self._wake:
            self._asked = True
            self._wake.notify()
            return self.current

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify()
        self._thread.join()

    def _work(self) -> None:
        while (exact := self._next()) is not None:
            began = time.monotonic()
            try:
                with self._device_lock:
                    self.current = self._make(None if exact else self.current)
            except Exception as error:  # the current snapshot remains; the next commit is another chance
                self._failed = True
                self._on_error(error)
            self._ended = time.monotonic()
            self._took = 0.0 if exact else self._ended - began  # it was a pause that was used

    def _next(self) -> bool | None:
        """Waits until a snapshot is due; returns whether it is to be exact."""
        with self._wake:
            while not self._stopped:
                now, due = time.monotonic(), self._due()
                if due <= now:
                    exact, self._is_offered = not self._is_offered, False
                    self._asked = self._asked and exact
                    return exact
                self._wake.wait(None if due == math.inf else due - now)
            return None

    def _due(self) -> float:
        """When the next snapshot is to be made."""
        rested = self._ended + self._took
        if not self._is_offered:
            return math.inf if self.current.exact or self._failed else max(rested, self._offered + EXACT_AFTER)
        paused = min(self._offered + min(self._took, LONGEST_PAUSE), self._ended + UNASKED * self._took)
        return rested if self._asked else max(rested, paused)
