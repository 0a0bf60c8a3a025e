"""Snapshots: independent learners in a committed state, from which predictions are computed while the writer learns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prol.answers import Answer, ranked
from prol.classes import Label
from prol.learner import Learner, SavedState
from prol.novelty import Novelty
from prol.serve.pending import PendingImage
from prol.serve.uploads import Pixels


@dataclass(frozen=True)
class ImagePrediction:
    """The prediction for one image: labels, best first; familiarity; and the unknown-class score derived from it.

    The last two are None where the method has no familiarity, `unknown` also before enough images were observed.
    """

    labels: list[Answer]
    familiarity: float | None
    unknown: float | None


class Snapshot:
    """A learner in one committed state, never changed. Any number of threads may use it at a time."""

    def __init__(self, version: int, like: Learner, state: SavedState, novelty: dict[str, Any] | None) -> None:
        self.version = version
        self.classes: frozenset[Label] = frozenset(state[1]["classes"])
        self._novelty = _novelty(novelty)
        self._learner = type(like)(like.backbone, like.options, like.seed)
        self._learner.load_state(*state)
        # Solves now what the method would solve at the first prediction, so that no client waits for it.
        self.predict([np.zeros((8, 8, 3), dtype=np.uint8)], top=1)

    def predict(self, images: Sequence[Pixels], top: int) -> list[ImagePrediction]:
        scores, familiarity = self._learner.predict_with_familiarity(list(images))
        labels = ranked(scores, self._learner.classes, top, self._learner.probable(scores))
        unknown = None if familiarity is None else self._novelty.unknown(familiarity)
        nothing = [None] * len(images)
        rows = (nothing if values is None else values.tolist() for values in (familiarity, unknown))
        return [ImagePrediction(*row) for row in zip(labels, *rows, strict=True)]

    def familiarity(self, images: Sequence[Pixels]) -> Tensor | None:
        """`[N]`, higher meaning more like what was learnt; None where the method has none, or has learnt nothing."""
        return self._learner.predict_with_familiarity(list(images))[1] if self.classes else None


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


class Calibrator:
    """Observes how familiar images are before they are learnt, which calibrates the score for unknown classes.

    It uses the current snapshot, where everything is solved already, and skips chunks once it has cost too much time.
    """

    FIRST_CHUNKS = 20
    """Chunks that are always observed."""
    TIME_SHARE = 0.1
    """Share of the running time that observing may take after them."""

    def __init__(self, novelty: dict[str, Any] | None, snapshot: Callable[[], Snapshot]) -> None:
        self._novelty, self._snapshot = _novelty(novelty), snapshot
        self._observed, self._spent, self._began = 0, 0.0, time.monotonic()

    def observe_images(self, images: Sequence[Pixels], labels: Sequence[Label]) -> None:
        began = time.monotonic()
        if self._observed >= self.FIRST_CHUNKS and self._spent >= self.TIME_SHARE * (began - self._began):
            return
        snapshot = self._snapshot()
        familiarity = snapshot.familiarity(images)
        if familiarity is not None:
            self._novelty.observe(familiarity, torch.tensor([label in snapshot.classes for label in labels]))
        self._observed += 1
        self._spent += time.monotonic() - began

    def observe_pending(self, images: Sequence[PendingImage], labels: Sequence[Label]) -> None:
        """The familiarity of images that were predicted before is known already."""
        seen = [
            (one.familiarity, label in one.known)
            for one, label in zip(images, labels, strict=True)
            if one.familiarity is not None
        ]
        if seen:
            familiarity, known = zip(*seen, strict=True)
            self._novelty.observe(torch.tensor(familiarity), torch.tensor(known))

    def state(self) -> dict[str, Any]:
        return self._novelty.state()

    def load_state(self, novelty: dict[str, Any] | None) -> None:
        self._novelty = _novelty(novelty)


def _novelty(state: dict[str, Any] | None) -> Novelty:
    return Novelty() if state is None else Novelty.from_state(state)
