"""How often one client may ask."""

from __future__ import annotations

import threading
from collections import OrderedDict

_MOST_CLIENTS = 10_000


class Rate:
    """A bucket a client: it fills with `per_second` requests a second and holds those of one second, at least one."""

    def __init__(self, per_second: float) -> None:
        self.per_second, self.room = per_second, max(1.0, per_second)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, client: str, now: float) -> float:
        """Seconds after which the client may ask; 0 if it may now, which counts as asking.

        >>> rate = Rate(2)
        >>> [rate.wait("a", 0.0), rate.wait("a", 0.0), rate.wait("a", 0.0), rate.wait("b", 0.0), rate.wait("a", 0.5)]
        [0.0, 0.0, 0.5, 0.0, 0.0]
        """
        with self._lock:
            left, then = self._buckets.pop(client, (self.room, now))
            left = min(self.room, left + (now - then) * self.per_second)
            allowed = left >= 1
            self._buckets[client] = (left - 1 if allowed else left, now)
            while len(self._buckets) > _MOST_CLIENTS:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self.per_second
