"""Where many runs are executed: in this process, in several processes on this machine, or elsewhere."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import Protocol, cast

from prol.options import Count, Whole, require_ranges
from prol.runs.display import Display, Lines
from prol.runs.folder import RunFolder
from prol.runs.inspection import require_planned
from prol.runs.plan import Plan
from prol.runs.run import resume, start
from prol.runs.threads import free_threads

RETRIES = 2
"""How often a run whose process died is resumed."""

_LINE, _ENDED = "line", "ended"

Hear = Callable[[Path, str], None]
Outcomes = Generator[tuple[Path, str | None], None, None]


class Executor(Protocol):
    """Executes runs that do not depend on each other.

    The state of a run is in its folder. Closing the generator stops the running ones, which can be resumed later.
    """

    def execute(self, pending: Mapping[Path, Plan], hear: Hear) -> Outcomes:
        """Executes each plan in its folder.

        Yields each folder when its run ends, with the error as one sentence, None if it finished.

        Args:
            hear: receives each run's output, line by line.
        """
        ...


@dataclass(frozen=True)
class Serial:
    """One run after the other in this process; `display` shows them."""

    display: Display

    def execute(self, pending: Mapping[Path, Plan], hear: Hear) -> Outcomes:
        del hear  # the display shows it
        threads = free_threads()
        for path, plan in pending.items():
            yield path, attempt(with_threads(plan, path, threads), path, self.display)


OneByOne = Serial
"""Deprecated: what version 0.1 called `Serial`."""


@dataclass(frozen=True)
class LocalProcesses:
    """`jobs` runs at a time, each in its own process; a run whose process dies is resumed in a new one.

    Runs share the threads that are free at the start, unless their plans say how many they use.
    """

    jobs: Count
    retries: Whole = RETRIES

    def __post_init__(self) -> None:
        require_ranges(self)

    def execute(self, pending: Mapping[Path, Plan], hear: Hear) -> Outcomes:
        context = multiprocessing.get_context("spawn")  # a forked process could not use the GPU
        waiting = list(pending.items())
        at_once = min(self.jobs, len(pending))
        share = free_threads() / at_once if at_once > 1 else None  # before these runs are load themselves
        running: dict[Connection, tuple[SpawnProcess, Path]] = {}
        outcomes: dict[Path, str | None] = {}
        retries_left = dict.fromkeys(pending, self.retries)
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    path, plan = waiting.pop(0)
                    if share is not None:
                        plan = with_share_of_processors(plan, path, share)
                    ours, theirs = context.Pipe(duplex=False)
                    process = context.Process(target=_run_in_process, args=(theirs, plan, path), daemon=True)
                    with _interrupts_blocked():
                        process.start()
                    theirs.close()
                    running[ours] = (process, path)
                for ready in cast("list[Connection]", wait(list(running))):
                    process, path = running[ready]
                    try:
                        kind, text = ready.recv()
                    except EOFError:
                        process.join()
                        ready.close()
                        del running[ready]
                        died = f"its process ended with code {process.exitcode}"
                        if path in outcomes or not retries_left[path]:
                            yield path, outcomes.get(path, died)
                        else:
                            retries_left[path] -= 1
                            waiting.insert(0, (path, pending[path]))
                            hear(path, f"{died}; resuming from its last checkpoint")
                        continue
                    if kind == _ENDED:
                        outcomes[path] = text
                    else:
                        hear(path, text)
        finally:
            for process, _ in running.values():
                process.terminate()
            for process, _ in running.values():
                process.join()


def finish(plan: Plan, path: Path, display: Display) -> RunFolder:
    """The finished run of this plan in a folder: started, resumed or left as it is."""
    run = RunFolder(path)
    if run.status() in ("empty", "something else"):
        return start(plan, path, display)
    require_planned(plan, run)
    return resume(path, display, side_by_side=plan.side_by_side)


def attempt(plan: Plan, path: Path, display: Display) -> str | None:
    """Finishes a run; returns the error as one sentence, None if it finished."""
    try:
        finish(plan, path, display)
    except Exception as error:
        return sentence_of(error)
    return None


def with_share_of_processors(plan: Plan, path: Path, cpus: float) -> Plan:
    """The plan with no more threads than its share of the processors, unless it sets them or has begun."""
    if RunFolder(path).config.is_file():
        return plan
    whole = max(1, int(cpus))
    workers = max(1, whole // 2) if plan.workers is None else plan.workers
    return replace(with_threads(plan, path, whole), workers=workers)


def with_threads(plan: Plan, path: Path, threads: int) -> Plan:
    """The plan with this number of threads, unless it sets one or has begun."""
    return plan if plan.threads or RunFolder(path).config.is_file() else replace(plan, threads=threads)


def sentence_of(error: Exception) -> str:
    """An error in words; PROL_DEBUG=1 raises it instead."""
    if os.environ.get("PROL_DEBUG") == "1":
        raise error
    return in_words(error)


def in_words(error: BaseException) -> str:
    """An error on one line, with its type unless it is a mistake of the caller."""
    words = " ".join(str(error).split())
    return words if isinstance(error, ValueError | OSError) and words else f"{type(error).__name__}: {words}"


def _run_in_process(parent: Connection, plan: Plan, path: Path) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    display = Lines(lambda line: parent.send((_LINE, line)))
    parent.send((_ENDED, attempt(plan, path, display)))


def _end_with_parent() -> None:
    """A killed parent cannot stop its children, and their folders may be needed at once."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """A process started meanwhile never receives Ctrl-C: its parent stops it. Ours is delivered afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started later, it would unblock interrupts again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
