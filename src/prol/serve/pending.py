"""Images that were predicted and may still get a label: in memory only, few, and not for long."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from prol.labels import Label


@dataclass(frozen=True)
class Waiting:
    """An image as it was sent, what was said about it, and what was known then.

    `familiarity` is None where the method cannot tell; `predicted` is None where nothing was learnt yet.
    """

    data: bytes
    predicted: Label | None
    familiarity: float | None
    known: frozenset[Label]


class Pending:
    """Waiting images by unguessable ids. When there is no more room, the oldest make way."""

    def __init__(
        self, images: int, most_bytes: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.most_images, self.most_bytes, self.seconds = images, most_bytes, seconds
        self._clock = clock
        self._lock = threading.Lock()
        # In the order of their deadlines, which is that of their coming: all wait equally long.
        self._waiting: dict[str, tuple[float, Waiting]] = {}
        self._bytes = 0

    def add(self, images: Sequence[Waiting]) -> list[str]:
        """An id for each."""
        ids = [secrets.token_urlsafe(16) for _ in images]
        with self._lock:
            self._drop_expired()
            deadline = self._clock() + self.seconds
            for name, image in zip(ids, images, strict=True):
                self._put(name, deadline, image)
            while self._waiting and (len(self._waiting) > self.most_images or self._bytes > self.most_bytes):
                self._drop(next(iter(self._waiting)))
        return ids

    def claim(self, ids: Sequence[str]) -> dict[str, tuple[float, Waiting]]:
        """Takes out those that are still there, to be learnt, or to be given back if that fails."""
        with self._lock:
            self._drop_expired()
            return {name: self._drop(name) for name in ids if name in self._waiting}

    def give_back(self, claimed: dict[str, tuple[float, Waiting]]) -> None:
        """Puts claimed images back, with the deadlines they had."""
        with self._lock:
            for name, (deadline, image) in claimed.items():
                self._put(name, deadline, image)
            self._waiting = dict(sorted(self._waiting.items(), key=lambda item: item[1][0]))

    def rename(self, old: Label, new: Label) -> None:
        """A class has another name now: what was predicted means that one."""
        with self._lock:
            for name, (deadline, image) in self._waiting.items():
                if image.predicted == old:
                    self._waiting[name] = deadline, replace(image, predicted=new)

    def sweep(self) -> None:
        """Drops what has expired."""
        with self._lock:
            self._drop_expired()

    def amounts(self) -> tuple[int, int]:
        """Images and bytes that wait now."""
        with self._lock:
            self._drop_expired()
            return len(self._waiting), self._bytes

    def _put(self, name: str, deadline: float, image: Waiting) -> None:
        self._waiting[name] = deadline, image
        self._bytes += len(image.data)

    def _drop(self, name: str) -> tuple[float, Waiting]:
        entry = self._waiting.pop(name)
        self._bytes -= len(entry[1].data)
        return entry

    def _drop_expired(self) -> None:
        now = self._clock()
        for name in [name for name, (deadline, _) in self._waiting.items() if deadline <= now]:
            self._drop(name)
