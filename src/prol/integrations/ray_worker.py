"""What a worker of a Ray cluster does: one run, reported line by line to the machine that requested it."""

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
"""How long the lock of a lost worker may outlive it on a shared file system."""


@dataclass(frozen=True)
class RunRequest:
    """One run for a worker, and what the worker needs to check that it can do it.

    Args:
        path: absolute path of the run's folder.
        marker: a file beside the run's folder; a worker that cannot see it shares no files with the driver.
        source: `source_sha256()` of the driver.
        folder: the working directory for relative paths in the plan.
        cpus: reserved for this run.
        again: whether an earlier worker was lost during this run.
    """

    plan: Plan
    path: Path
    marker: Path
    source: str
    folder: Path
    cpus: float
    again: bool = False


@dataclass(frozen=True)
class RunEnded:
    """The last message of a worker: why the run did not finish, None if it did."""

    problem: str | None


def work(request: RunRequest) -> Iterator[str | RunEnded]:
    """Executes a run; yields its lines as they come, then `RunEnded`."""
    yield f"running in process {os.getpid()} on {platform.node()}"
    problem = reason_to_refuse(request)
    if problem is not None:
        yield RunEnded(problem)
        return
    messages: SimpleQueue[str | RunEnded] = SimpleQueue()
    # In a thread, so that lines are sent while the run continues.
    Thread(target=_execute, args=(request, messages), daemon=True).start()
    while True:
        message = messages.get()
        yield message
        if isinstance(message, RunEnded):
            return


def reason_to_refuse(request: RunRequest) -> str | None:
    """Why a run here would not be the one that the driver requested."""
    here = platform.node()
    if not request.marker.is_file():
        return (
            f"the worker on {here} does not see {request.marker.parent}: choose an --out on a file system that all "
            "machines of the cluster share under the same name"
        )
    if source_sha256() != request.source:
        return (
            f"the worker on {here} has another prol ({prol.__version__} in {Path(prol.__file__).parent}): install the "
            "same one on all machines of the cluster"
        )
    return None


@cache
def source_sha256() -> str:
    """A hash of this package's source."""
    digest, root = hashlib.sha256(), Path(prol.__file__).parent
    for file in sorted(root.rglob("*.py")):
        digest.update(f"{file.relative_to(root).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _execute(request: RunRequest, messages: SimpleQueue[str | RunEnded]) -> None:
    """Puts `RunEnded` last however the run ends: the driver waits for it."""
    try:
        if request.again:
            _wait_for_lock(RunFolder(request.path))
        plan = with_share_of_processors(request.plan, request.path, request.cpus)
        with chdir(request.folder) if request.folder.is_dir() else nullcontext():
            problem = attempt(plan, request.path, lines_to(messages.put))
    except BaseException as error:
        if os.environ.get("PROL_DEBUG") == "1":  # an exception raised here would not be seen by anybody
            for line in "".join(traceback.format_exception(error)).splitlines():
                messages.put(line)
        problem = in_words(error)
    messages.put(RunEnded(problem))


def _wait_for_lock(run: RunFolder, seconds: float = LOCK_SECONDS) -> None:
    """Waits until the run's folder is unlocked. A lock ends with its process; on a file server it may take longer."""
    deadline = time.monotonic() + seconds
    while run.path.is_dir() and time.monotonic() < deadline:
        try:
            with run.locked():
                return
        except ValueError:
            time.sleep(0.2)
