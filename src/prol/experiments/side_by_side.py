"""Runs side by side, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import cast

import torch

from prol.experiments.one_run import attempt, within
from prol.experiments.told_lines import display_to
from prol.runs import Plan

_LINE, _ENDED = "line", "ended"


def settle_side_by_side(
    runs: Mapping[Path, Plan], jobs: int, say: Callable[[Path, str], None], retries: int = 0
) -> Generator[tuple[Path, str | None], None, None]:
    """Settles each plan in its folder, `jobs` of them at a time, each with its share of torch's threads.

    Yields folders as they end, each with what kept it from finishing. Whoever stops listening ends the processes;
    what they have done is in their folders, and they go on from there another time.

    Args:
        say: is given what each run has to tell, line by line.
        retries: how often a run whose process died is taken up again.
    """
    context = multiprocessing.get_context("spawn")  # a forked process could not use the GPU
    waiting = list(runs.items())
    at_once = min(jobs, len(runs))
    at_work: dict[Connection, tuple[SpawnProcess, Path]] = {}
    outcomes: dict[Path, str | None] = {}
    left = dict.fromkeys(runs, retries)
    try:
        while waiting or at_work:
            while waiting and len(at_work) < jobs:
                path, plan = waiting.pop(0)
                if at_once > 1:
                    plan = within(plan, path, torch.get_num_threads() / at_once)
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(theirs, plan, path), daemon=True)
                with _interrupts_held_back():
                    process.start()
                theirs.close()
                at_work[ours] = (process, path)
            for ready in cast("list[Connection]", wait(list(at_work))):
                process, path = at_work[ready]
                try:
                    kind, text = ready.recv()
                except EOFError:
                    process.join()
                    ready.close()
                    del at_work[ready]
                    died = f"its process ended with code {process.exitcode}"
                    if path in outcomes or not left[path]:
                        yield path, outcomes.get(path, died)
                    else:
                        left[path] -= 1
                        waiting.insert(0, (path, runs[path]))
                        say(path, f"{died}; going on from its last checkpoint")
                    continue
                if kind == _ENDED:
                    outcomes[path] = text
                else:
                    say(path, text)
    finally:
        for process, _ in at_work.values():
            process.terminate()
        for process, _ in at_work.values():
            process.join()


def _work(home: Connection, plan: Plan, path: Path) -> None:
    Thread(target=_end_with_parent, daemon=True).start()
    display = display_to(lambda line: home.send((_LINE, line)))
    home.send((_ENDED, attempt(plan, path, display)))


def _end_with_parent() -> None:
    """A parent that was killed could not end us; another one may want this run's folder at once."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A process begun meanwhile never sees Ctrl-C: the one that began it ends it. Ours comes through afterwards."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # begun later, it would let interrupts through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
