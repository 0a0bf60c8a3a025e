"""A run's display as lines that travel to whoever began it."""

from __future__ import annotations

import io
from collections.abc import Callable

from rich.console import Console

from prol.runs.display import Lines


def display_to(tell: Callable[[str], None]) -> Lines:
    """A display that hands each line on."""
    return Lines(Console(file=_Outbox(tell), highlight=False, markup=False))


def say_nothing(line: str) -> None:
    """For those who do not want to hear how things get on."""
    del line


class _Outbox(io.StringIO):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self.hand_on = tell

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self.hand_on(line)
        return len(text)
