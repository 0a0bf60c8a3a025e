"""Where output goes: rich on a terminal, plain text elsewhere."""

from __future__ import annotations

import sys

from rich.console import Console

_PLAIN_WIDTH = 120


def output() -> Console:
    """Standard output. In a file or a pipe there are no colours and no moving parts, and lines may be long."""
    terminal = sys.stdout.isatty()
    return Console(
        force_terminal=terminal,
        no_color=None if terminal else True,
        width=None if terminal else _PLAIN_WIDTH,
        highlight=False,
        markup=False,
    )
