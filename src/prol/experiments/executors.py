"""Where the runs of an experiment are carried out: in this process, in others on this machine, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prol.experiments.one_run import attempt
from prol.experiments.side_by_side import settle_side_by_side
from prol.runs import Display, Plan

RETRIES = 2
"""How often a run whose process died is taken up again."""


class Executor(Protocol):
    """Carries out runs that do not depend on each other.

    What a run has done is in its folder; whoever stops listening ends the runs at work, which go on from there
    another time.
    """

    def settle(
        self, pending: Mapping[Path, Plan], hear: Callable[[Path, str], None]
    ) -> Generator[tuple[Path, str | None], None, None]:
        """Carries out each plan in its folder.

        Yields each folder when it is over, with what kept it from finishing as one sentence, None if nothing did.

        Args:
            hear: is given what each run has to tell, line by line.
        """
        ...


@dataclass(frozen=True)
class OneByOne:
    """One run after the other in this process; `display` shows them."""

    display: Display

    def settle(
        self, pending: Mapping[Path, Plan], hear: Callable[[Path, str], None]
    ) -> Generator[tuple[Path, str | None], None, None]:
        del hear  # the display shows it
        for path, plan in pending.items():
            yield path, attempt(plan, path, self.display)


@dataclass(frozen=True)
class LocalProcesses:
    """`jobs` runs at a time, each in a process of its own; one whose process dies goes on in a new one."""

    jobs: int
    retries: int = RETRIES

    def __post_init__(self) -> None:
        require_jobs(self.jobs)
        require_retries(self.retries)

    def settle(
        self, pending: Mapping[Path, Plan], hear: Callable[[Path, str], None]
    ) -> Generator[tuple[Path, str | None], None, None]:
        yield from settle_side_by_side(pending, self.jobs, hear, self.retries)


def require_jobs(jobs: int) -> None:
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")


def require_retries(retries: int) -> None:
    if retries < 0:
        raise ValueError(f"retries must be 0 or more, got {retries}")
