"""Who follows a run from outside: told of every event, and where the run stands when it begins or goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from prol.evaluation import Cursor, Event
from prol.runs.timing import Timing

Listener = Callable[[Event, float], None]
"""Is given each event, with the seconds it took to come about."""


@dataclass(frozen=True)
class RunInView:
    """A run that begins, or goes on where `cursor` is.

    `cursor` and `timing` are the run's own and move on with it: they are for reading only.
    """

    config: Mapping[str, Any]
    folder: Path
    cursor: Cursor
    timing: Timing
    warn: Callable[[str], None]


@runtime_checkable
class Follower(Protocol):
    """Gives a listener for as long as a run lasts; the context ends with the exception that has ended the run, if any.

    One may follow several runs, one after another or each in a process of its own.
    """

    def follow(self, run: RunInView) -> AbstractContextManager[Listener]: ...


@contextmanager
def followed(run: RunInView, listeners: Sequence[Listener | Follower]) -> Iterator[list[Listener]]:
    """Listeners as they are, and those of followers while the context lasts."""
    with ExitStack() as stack:
        yield [stack.enter_context(one.follow(run)) if isinstance(one, Follower) else one for one in listeners]
