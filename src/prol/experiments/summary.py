"""What many runs come to together, written anew after each of them: never a reason to stop those at work."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prol.experiments.executors import Executor, OneByOne
from prol.runs import RunFolder

BESIDE = "side_by_side"
"""Where a summary holds which runs had others at work beside them, by the names of their folders."""


class Writer:
    """Writes a summary; where the disk will not have it, that is told, and the next run is another chance."""

    def __init__(self, write: Callable[[], None], say: Callable[[str], None]) -> None:
        self._write, self._say, self._behind = write, say, False

    def write_if_possible(self) -> None:
        try:
            self._write()
        except OSError as error:
            if not self._behind:
                self._say(f"the summary cannot be written, runs go on without it for now: {error}")
            self._behind = True
        else:
            self._behind = False

    def write_at_last(self) -> None:
        """Raises OSError where it still cannot be written."""
        if self._behind:
            self._write()


@contextmanager
def kept_up_to_date(
    write: Callable[[], None], say: Callable[[str], None], beside: dict[str, bool], pending: Iterable[Path]
) -> Iterator[Writer]:
    """Writes a summary before the first run and after the last, whatever ends them; between, the writer does."""
    write()
    writer = Writer(write, say)
    try:
        yield writer
    except BaseException:
        forget_unbegun(beside, pending)
        writer.write_if_possible()
        raise
    writer.write_at_last()


def company_of(file: Path, pending: Collection[Path], executor: Executor) -> dict[str, bool]:
    """Which runs had company as far as an earlier summary says, with those that are about to have some."""
    beside = known_beside(file)
    forget_unbegun(beside, pending)  # a process that was killed had no time to
    one_at_a_time = isinstance(executor, OneByOne) or getattr(executor, "jobs", None) == 1
    return beside if one_at_a_time or len(pending) < 2 else beside | {path.name: True for path in pending}


def forget_unbegun(beside: dict[str, bool], pending: Iterable[Path]) -> None:
    """Takes back that a run had company, where everything ended before it began."""
    for path in pending:
        if not RunFolder(path).config.is_file():
            beside.pop(path.name, None)


def known_beside(file: Path) -> dict[str, bool]:
    """Which runs had company, as far as an earlier summary says."""
    try:
        known: dict[str, bool] = dict(json.loads(file.read_text(encoding="utf-8"))[BESIDE])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return known
