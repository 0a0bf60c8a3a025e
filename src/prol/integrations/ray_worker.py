"""What a worker of a Ray cluster does: one run, told line by line to the machine that asked for it."""

from __future__ import annotations

import hashlib
import os
import platform
import time
import traceback
from collections.abc import Iterator
from contextlib import chdir, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import prol
from prol.runs import Plan, RunFolder
from prol.runs.display import lines_to
from prol.runs.executors import attempt, in_words, with_share_of_processors

LOCK_SECONDS = 120.0
"""How long the lock of a worker that is lost may outlive it, where machines share files."""


@dataclass(frozen=True)
class Errand:
    """One run for a worker, with what it needs to know whether it is the right one for it.

    Args:
        path: of the run's folder, absolute.
        marker: a file beside the run's folder; a worker that cannot see it shares no files with who asked.
        source: `source_sha256()` of who asked.
        folder: where relative names in the plan begin.
        cpus: set aside for this run.
        again: whether an earlier worker was lost on it.
    """

    plan: Plan
    path: Path
    marker: Path
    source: str
    folder: Path
    cpus: float
    again: bool = False


@dataclass(frozen=True)
class Over:
    """The last word of a worker: what kept the run from finishing, None if nothing did."""

    problem: str | None


def work(errand: Errand) -> Iterator[str | Over]:
    """Carries out a run; gives its lines as they come, then `Over`."""
    yield f"at work in process {os.getpid()} on {platform.node()}"
    problem = reason_to_refuse(errand)
    if problem is not None:
        yield Over(problem)
        return
    told: SimpleQueue[str | Over] = SimpleQueue()
    # The run has a thread of its own, so that its lines can leave while it works.
    Thread(target=_work_aside, args=(errand, told), daemon=True).start()
    while True:
        word = told.get()
        yield word
        if isinstance(word, Over):
            return


def reason_to_refuse(errand: Errand) -> str | None:
    """Why this worker cannot do the run as who asked would do it."""
    here = platform.node()
    if not errand.marker.is_file():
        return (
            f"the worker on {here} does not see {errand.marker.parent}: choose an --out on a file system that all "
            "machines of the cluster share under the same name"
        )
    if source_sha256() != errand.source:
        return (
            f"the worker on {here} has another prol ({prol.__version__} in {Path(prol.__file__).parent}): install the "
            "same one on all machines of the cluster"
        )
    return None


@cache
def source_sha256() -> str:
    """A hash of this package's own source."""
    digest, root = hashlib.sha256(), Path(prol.__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _work_aside(errand: Errand, told: SimpleQueue[str | Over]) -> None:
    """However the run ends, its last word is told: whoever listens waits for nothing else."""
    try:
        problem = _settle(errand, told)
    except BaseException as error:
        if os.environ.get("PROL_DEBUG") == "1":  # here nobody would see what is raised
            for line in "".join(traceback.format_exception(error)).splitlines():
                told.put(line)
        problem = in_words(error)
    told.put(Over(problem))


def _settle(errand: Errand, told: SimpleQueue[str | Over]) -> str | None:
    run = RunFolder(errand.path)
    if errand.again:
        _wait_for_lock(run)
    plan = with_share_of_processors(errand.plan, errand.path, errand.cpus)
    with chdir(errand.folder) if errand.folder.is_dir() else nullcontext():
        return attempt(plan, errand.path, lines_to(told.put))


def _wait_for_lock(run: RunFolder, seconds: float = LOCK_SECONDS) -> None:
    """Until the run's folder is free. On one machine a lock goes with its process; a file server may take longer."""
    deadline = time.monotonic() + seconds
    while run.path.is_dir() and time.monotonic() < deadline:
        try:
            with run.locked():
                return
        except ValueError:
            time.sleep(1)
