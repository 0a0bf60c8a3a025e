"""Snapshots: independent learners in a committed state, from which predictions are computed while the writer learns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from prol.learner import Learner, SavedState
from prol.ranking import Prediction, ranked
from prol.serve.uploads import Pixels

UNASKED = 9
"""Rest after a snapshot, in times of what it took, while chunks are learnt and nobody predicts."""
LONGEST_PAUSE = 1.0
"""Seconds without a new chunk after which learning has paused."""


@dataclass(frozen=True)
class ImagePrediction:
    """The prediction for one image: labels, best first, and the unknown-class score.

    `unknown` is None where the method has no familiarity, or before enough images were observed.
    """

    labels: list[Prediction]
    unknown: float | None


class Snapshot:
    """A learner in one committed state, never changed. Any number of threads may use it at a time."""

    def __init__(self, version: int, like: Learner, state: SavedState) -> None:
        self.version = version
        self._learner = type(like)(like.backbone, like.options, like.seed)
        self._learner.load_state(*state)
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

    After each it rests as long as that one took, so that it takes at most half of a processor. While chunks are learnt
    and nobody predicts, it takes at most a tenth: it waits until learning pauses.
    """

    def __init__(
        self, first: Snapshot, device_lock: AbstractContextManager[object], on_error: Callable[[Exception], None]
    ) -> None:
        self.current = first
        self._device_lock, self._on_error = device_lock, on_error
        self._offer: Callable[[], Snapshot] | None = None
        self._offered, self._ended, self._took, self._asked = 0.0, 0.0, 0.0, False
        self._wake, self._stopped = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, name="prol-publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, make: Callable[[], Snapshot]) -> None:
        """Offers a newer state to publish; it replaces an earlier offer that was not started yet."""
        with self._wake:
            self._offer, self._offered = make, time.monotonic()
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
        while (make := self._next()) is not None:
            began = time.monotonic()
            try:
                with self._device_lock:
                    self.current = make()
            except Exception as error:  # the current snapshot remains; the next commit is another chance
                self._on_error(error)
            self._ended = time.monotonic()
            self._took = self._ended - began

    def _next(self) -> Callable[[], Snapshot] | None:
        """Waits until a snapshot is due."""
        with self._wake:
            while not self._stopped:
                left = None if self._offer is None else self._due() - time.monotonic()
                if left is not None and left <= 0:
                    offer, self._offer, self._asked = self._offer, None, False
                    return offer
                self._wake.wait(left)
            return None

    def _due(self) -> float:
        """When the offer is to be taken."""
        rested = self._ended + self._took
        paused = min(self._offered + min(self._took, LONGEST_PAUSE), self._ended + UNASKED * self._took)
        return rested if self._asked else max(rested, paused)
