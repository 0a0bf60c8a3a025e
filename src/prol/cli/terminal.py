"""Standard output: rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import os
import sys

from rich.console import Console

_PLAIN_WIDTH = 120


class PatientConsole(Console):
    """Falls silent when the reader of the output has gone (`prol run ... | head`); the run continues."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def output() -> Console:
    """Standard output. In a file or a pipe there are no colours and no moving parts, and lines may be long."""
    terminal = sys.stdout.isatty()
    return PatientConsole(
        force_terminal=terminal,
        no_color=None if terminal else True,
        width=None if terminal else _PLAIN_WIDTH,
        highlight=False,
        markup=False,
    )
