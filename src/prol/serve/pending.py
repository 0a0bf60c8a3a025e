"""Images that were predicted and may still get a label: in memory only, limited in number, size and time."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from prol.classes import Label


@dataclass(frozen=True)
class PendingImage:
    """An image as it was sent, and its prediction; None where nothing was learnt yet."""

    data: bytes
    predicted: Label | None


class Pending:
    """Pending images by unguessable ids. When a limit is reached, the oldest are dropped."""

    def __init__(
        self, max_images: int, max_bytes: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_images, self.max_bytes, self.seconds = max_images, max_bytes, seconds
        self._clock = clock
        self._lock = threading.Lock()
        # Ordered by deadline, which is the order of arrival: all wait equally long.
        self._images: dict[str, tuple[float, PendingImage]] = {}
        self.bytes = 0

    def add(self, images: Sequence[PendingImage]) -> list[str]:
        """Stores images and returns an id for each."""
        ids = [secrets.token_urlsafe(16) for _ in images]
        with self._lock:
            self._drop_expired()
            deadline = self._clock() + self.seconds
            for name, image in zip(ids, images, strict=True):
                self._put(name, deadline, image)
            while self._images and (len(self._images) > self.max_images or self.bytes > self.max_bytes):
                self._drop(next(iter(self._images)))
        return ids

    def claim(self, ids: Sequence[str]) -> dict[str, tuple[float, PendingImage]]:
        """Takes out those that are still there, to be learnt, or to be given back if that fails."""
        with self._lock:
            self._drop_expired()
            return {name: self._drop(name) for name in ids if name in self._images}

    def look(self, ids: Sequence[str]) -> dict[str, PendingImage]:
        """Those that are still there; they stay, no longer than before."""
        with self._lock:
            self._drop_expired()
            return {name: self._images[name][1] for name in ids if name in self._images}

    def predicted(self, labels: dict[str, Label | None]) -> None:
        """Images have another prediction now, as far as they are still there."""
        with self._lock:
            for name, label in labels.items():
                if name in self._images:
                    deadline, image = self._images[name]
                    self._images[name] = deadline, replace(image, predicted=label)

    def give_back(self, claimed: dict[str, tuple[float, PendingImage]]) -> None:
        """Puts claimed images back, with the deadlines they had."""
        with self._lock:
            for name, (deadline, image) in claimed.items():
                self._put(name, deadline, image)
            self._images = dict(sorted(self._images.items(), key=lambda item: item[1][0]))

    def rename(self, old: Label, new: Label) -> None:
        """A class has a new name: predictions of the old one count as predictions of the new one."""
        with self._lock:
            for name, (deadline, image) in self._images.items():
                if image.predicted == old:
                    self._images[name] = deadline, replace(image, predicted=new)

    def drop_oldest(self) -> None:
        with self._lock:
            if self._images:
                self._drop(next(iter(self._images)))

    def amounts(self) -> tuple[int, int]:
        """Number and bytes of the images that are pending now; expired ones are dropped first."""
        with self._lock:
            self._drop_expired()
            return len(self._images), self.bytes

    def _put(self, name: str, deadline: float, image: PendingImage) -> None:
        self._images[name] = deadline, image
        self.bytes += len(image.data)

    def _drop(self, name: str) -> tuple[float, PendingImage]:
        entry = self._images.pop(name)
        self.bytes -= len(entry[1].data)
        return entry

    def _drop_expired(self) -> None:
        now = self._clock()
        for name in [name for name, (deadline, _) in self._images.items() if deadline <= now]:
            self._drop(name)
