"""Standard output: rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

_PLAIN_WIDTH, _WIDE_ENOUGH = 120, 200


class PatientConsole(Console):
    """Falls silent when the reader of the output has gone (`prol run ... | head`); the run continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    def say(self, text: str) -> None:
        """Prints a line that only a terminal breaks."""
        self.print(text, soft_wrap=True)

    def widen(self) -> None:
        """Makes room for a wide table in a file, where a folded one helps nobody."""
        if not self.is_terminal:
            self.width = max(self.width, _WIDE_ENOUGH)

    @contextmanager
    def resumable(self) -> Iterator[None]:
        """Says how to resume when somebody stops many runs."""
        try:
            yield
        except KeyboardInterrupt:
            self.say("stopped: the same command resumes it")
            raise


def output() -> PatientConsole:
    """Standard output. In a file or a pipe there are no colours and no moving parts, and lines may be long."""
    terminal = sys.stdout.isatty()
    return PatientConsole(
        force_terminal=terminal,
        no_color=None if terminal else True,
        width=None if terminal else _PLAIN_WIDTH,
        highlight=False,
        markup=False,
    )
