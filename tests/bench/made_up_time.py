"""A clock that advances by the durations that steps declare: arithmetic is tested, nothing is timed."""

from __future__ import annotations

from collections.abc import Callable


class MadeUpTime:
    """`clock()` reads it, and each call of a step made by `step` moves it on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def clock(self) -> float:
        return self.now

    def step(self, name: str, *seconds: float) -> Callable[[], None]:
        """A step that takes these seconds one after the other, the last ones for ever."""
        left = list(seconds)

        def take() -> None:
            self.log.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return take

    def wait(self) -> None:
        self.log.append("wait")
