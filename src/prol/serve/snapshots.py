"""Snapshots: independent learners in a committed state, from which predictions are computed while the writer learns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from prol.answers import Answer, ranked
from prol.learner import Learner, SavedState
from prol.serve.uploads import Pixels


@dataclass(frozen=True)
class ImagePrediction:
    """The prediction for one image: labels, best first, and the unknown-class score.

    `unknown` is None where the method has no familiarity, or before enough images were observed.
    """

    labels: list[Answer]
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
    """A thread that replaces the current snapshot by newer ones; after each it rests as long as that one took."""

    def __init__(
        self, first: Snapshot, device_lock: AbstractContextManager[object], on_error: Callable[[Exception], None]
    ) -> None:
        self.current = first
        self._device_lock, self._on_error = device_lock, on_error
        self._offer: Callable[[], Snapshot] | None = None
        self._wake, self._stopped = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, name="prol-publisher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def offer(self, make: Callable[[], Snapshot]) -> None:
        """Offers a newer state to publish; it replaces an earlier offer that was not started yet."""
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
                with self._device_lock:
                    self.current = make()
            except Exception as error:  # the current snapshot remains; the next commit is another chance
                self._on_error(error)
            took = time.monotonic() - began
            with self._wake:
                self._wake.wait_for(lambda: self._stopped, timeout=took)

    def _next(self) -> Callable[[], Snapshot] | None:
        with self._wake:
            self._wake.wait_for(lambda: self._stopped or self._offer is not None)
            offer, self._offer = self._offer, None
            return None if self._stopped else offer
