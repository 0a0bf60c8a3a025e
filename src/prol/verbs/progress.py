"""Progress on standard error while images are learnt."""

from __future__ import annotations

import sys
import time
from typing import Any, Self

from rich import progress as bars
from rich.console import Console

SECONDS_BETWEEN = 5.0
"""Seconds between two lines where there is no terminal."""


def standard_error(**settings: Any) -> Console:
    """Lines of plain text in a notebook, where a bar would need widgets."""
    return Console(stderr=True, force_jupyter=False, force_terminal=sys.stderr.isatty(), **settings)


class Progress:
    """A bar on a terminal, a line every few seconds in a notebook and elsewhere."""

    def __init__(self, title: str, total: int | None, shown: bool) -> None:
        self.console = standard_error(quiet=not shown, highlight=False, markup=False)
        self.total, self.began, self.said = total, time.perf_counter(), 0.0
        self.learnt, self.said_of, self.status = 0, 0, ""
        self.console.print(title, soft_wrap=True)
        self.bar: bars.Progress | None = None
        if shown and self.console.is_terminal:
            texts = bars.TextColumn("images"), bars.TimeRemainingColumn(), bars.TextColumn("{task.description}")
            self.bar = bars.Progress(bars.BarColumn(), bars.MofNCompleteColumn(), *texts, console=self.console)
            self.bar.add_task("", total=total)

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def update(self, learnt: int, status: str) -> None:
        self.learnt, self.status = learnt, status
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=learnt, description=status)
        elif self.seconds - self.said >= SECONDS_BETWEEN or not self.said:
            self._say()

    def __exit__(self, *error: object) -> None:
        del error
        if self.bar is not None:
            self.bar.stop()
        elif self.learnt > self.said_of:
            self._say()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def _say(self) -> None:
        self.said, self.said_of = self.seconds, self.learnt
        of = "" if self.total is None else f" of {self.total:,}"
        line = f"{self.learnt:,}{of} images in {self.said:.0f} s"
        self.console.print(f"{line}; {self.status}" if self.status else line, soft_wrap=True)
