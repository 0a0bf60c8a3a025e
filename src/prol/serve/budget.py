"""The memory that all requests in hand may take together."""

from __future__ import annotations

import threading

from prol.serve.refusals import Refusal


class Budget:
    """Bytes that are taken and given back, from any thread."""

    def __init__(self, limit: int) -> None:
        self.limit, self.taken = limit, 0
        self._lock = threading.Lock()

    def take(self, amount: int) -> None:
        """Refuses with 429 what does not fit now, and with 413 what never will."""
        if amount > self.limit:
            message = (
                f"This needs {amount:,} bytes of memory, {self.limit:,} are allowed: send fewer or smaller images."
            )
            raise Refusal(413, "too_large", message)
        with self._lock:
            if self.taken + amount > self.limit:
                message = "The service has its hands full: try again in a moment."
                raise Refusal(429, "busy", message, retry_after=1)
            self.taken += amount

    def give_back(self, amount: int) -> None:
        with self._lock:
            self.taken -= amount


class Share:
    """What one request has taken of the budget; given back as a whole when it ends."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self._taken = budget, 0

    def take(self, amount: int) -> None:
        self._budget.take(amount)
        self._taken += amount

    def end(self) -> None:
        self._budget.give_back(self._taken)
        self._taken = 0
