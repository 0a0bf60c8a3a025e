"""What has happened of late, for the status page and for Prometheus; in memory only."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

Kind = Literal["learnt", "predicted", "labelled", "renamed", "removed", "merged", "refused"]

MOST_EVENTS = 50
WINDOW = 60.0


class Flow:
    """How many of something there were in the last minute, and in all."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._clock, self._began = clock, clock()
        self._seen: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.total += count
            # One entry a second, so that a busy minute takes no more memory than a quiet one.
            now = float(int(self._clock()))
            if self._seen and self._seen[-1][0] == now:
                self._seen[-1] = now, self._seen[-1][1] + count
            else:
                self._seen.append((now, count))
            self._drop_old()

    def per_second(self) -> float:
        with self._lock:
            self._drop_old()
            elapsed = min(WINDOW, max(1.0, self._clock() - self._began))
            return sum(count for _, count in self._seen) / elapsed

    def _drop_old(self) -> None:
        while self._seen and self._seen[0][0] < self._clock() - WINDOW:
            self._seen.popleft()


class Journal:
    """Events, flows and counters, written from any thread."""

    def __init__(self) -> None:
        self.learnt, self.predicted = Flow(), Flow()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """By method, route and status."""
        self.request_seconds: dict[str, float] = {}
        """By route."""
        self.refused: Counter[str] = Counter()
        """By code."""
        self.commits = self.failed_commits = self.failed_snapshots = 0
        self.commit_seconds = 0.0
        self._events: deque[dict[str, str]] = deque(maxlen=MOST_EVENTS)
        self._lock = threading.Lock()

    def note(self, kind: Kind, text: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        with self._lock:
            self._events.appendleft({"time": now, "kind": kind, "text": text})

    def count_refusal(self, code: str) -> None:
        with self._lock:
            self.refused[code] += 1

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self.requests[method, route, status] += 1
            self.request_seconds[route] = self.request_seconds.get(route, 0.0) + seconds

    def count_commit(self, seconds: float) -> None:
        with self._lock:
            self.commits += 1
            self.commit_seconds += seconds

    def events(self) -> list[dict[str, Any]]:
        """Newest first."""
        with self._lock:
            return list(self._events)
