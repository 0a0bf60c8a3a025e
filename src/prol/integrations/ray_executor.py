"""Runs on a Ray cluster, existing or local: the executor, and what its workers do. Needs the extra `ray`."""

from __future__ import annotations

import hashlib
import math
import os
import platform
import socket
import sysconfig
import time
import traceback
import uuid
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import chdir, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import prol
from prol.files import UnsafeFile
from prol.options import Count, NotNegative, Positive, Whole, require_ranges
from prol.runs import Plan, RunFolder
from prol.runs.display import Lines
from prol.runs.executors import RETRIES, Job, attempt, how_resumed, in_words, sentence_of, with_share_of_processors

CONNECT_SECONDS = 10.0
LOCK_SECONDS = 120.0
"""How long the lock of a lost worker may outlive it on a shared file system."""


@dataclass(frozen=True)
class RayExecutor:
    """One Ray task per run. A run whose worker dies resumes from its last checkpoint in another worker.

    The run folders must be on a file system that all machines of the cluster share.

    Args:
        address: of a cluster, "auto" for the one this machine belongs to; None starts a local cluster and stops it
            afterwards. If Ray is already initialised in this process, that cluster is used.
        cpus: reserved for each run; also its number of threads, unless the plan sets one.
        gpus: reserved for each run; 0.25 lets four runs share one.
        memory: gigabytes reserved for each run.
        retries: how often a run is resumed after its worker died.
        jobs: the maximum number of concurrent runs; None for as many as the cluster has room for.
    """

    address: str | None = None
    cpus: Positive = 1
    gpus: NotNegative = 0
    memory: Positive | None = None
    retries: Whole = RETRIES
    jobs: Count | None = None

    def __post_init__(self) -> None:
        require_ranges(self)
        if self.gpus > 1 and self.gpus != int(self.gpus):
            raise ValueError(f"gpus must be a fraction of one or a whole number, got {self.gpus}")
        if self.address is not None and self.address.startswith("ray://"):
            raise ValueError(
                f"{self.address} is for programs outside a cluster, which share no files with it: call this on a "
                "machine of the cluster, with the address auto"
            )

    def execute(
        self, pending: Mapping[Path, Plan | Job], hear: Callable[[Path, str], None]
    ) -> Generator[tuple[Path, str | None], None, None]:
        if not pending:
            return
        ray = require_ray()
        with self._connected(ray), _markers(pending) as markers:
            if not _fits_somewhere(ray, self.resources()):
                hear(next(iter(pending)), f"no machine of the cluster has {self._wanted()} yet: waiting for one")
            requests = {
                path: RunRequest(plan, path.resolve(), markers[path], source_sha256(), Path.cwd(), self.cpus)
                for path, plan in pending.items()
            }
            yield from _Schedule(ray, self, requests, hear).execute()

    def resources(self) -> dict[str, float]:
        memory = {} if self.memory is None else {"memory": int(self.memory * 1e9)}
        return {"CPU": self.cpus, "GPU": self.gpus, **memory}

    def _wanted(self) -> str:
        memory = "" if self.memory is None else f" and {self.memory:g} GB"
        return f"{self.cpus:g} processors, {self.gpus:g} GPUs{memory}"

    @contextmanager
    def _connected(self, ray: Any) -> Iterator[None]:
        if ray.is_initialized():
            yield
            return
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        quiet = {"logging_level": "ERROR", "log_to_driver": False}
        try:
            if self.address is None:
                room = None if self.jobs is None else math.ceil(self.jobs * self.cpus)
                with _same_prol():
                    ray.init("local", num_cpus=room, include_dashboard=False, **quiet)
            else:
                _require_listener(self.address)
                ray.init(self.address, **quiet)
        except (ConnectionError, RuntimeError) as error:
            raise ValueError(
                f"cannot connect to a Ray cluster at {self.address}: start one with `ray start --head`, or leave the "
                f"address out; if it requires a token, set RAY_AUTH_MODE=token ({sentence_of(error)})"
            ) from error
        try:
            if self.address is None and not _fits_somewhere(ray, self.resources()):
                raise ValueError(f"this machine has less than {self._wanted()}: request less, or name a cluster")
            yield
        finally:
            ray.shutdown()


class _Schedule:
    """Waiting runs, running ones, and those that are resumed after their worker died."""

    def __init__(
        self, ray: Any, executor: RayExecutor, requests: Mapping[Path, RunRequest], hear: Callable[[Path, str], None]
    ) -> None:
        self.ray, self.executor, self.hear = ray, executor, hear
        self.waiting = list(requests.items())
        self.retries_left = dict.fromkeys(requests, executor.retries)
        self.running: dict[Any, tuple[Path, RunRequest]] = {}
        wanted = executor.resources()
        # Without Ray's own retries, which are silent and would repeat the lines of a run.
        self.remote = ray.remote(
            num_cpus=wanted["CPU"],
            num_gpus=wanted["GPU"],
            memory=wanted.get("memory"),
            max_retries=0,
            num_returns="streaming",
        )(work)

    def execute(self) -> Generator[tuple[Path, str | None], None, None]:
        try:
            while self.waiting or self.running:
                while self.waiting and len(self.running) < (self.executor.jobs or math.inf):
                    path, request = self.waiting.pop(0)
                    self.running[self.remote.remote(request)] = (path, request)
                (ready, *_), _ = self.ray.wait(list(self.running), num_returns=1)
                yield from self._receive(ready)
        finally:
            for stream in self.running:
                with suppress(Exception):  # it may have just ended, or the cluster may be gone
                    self.ray.cancel(stream, force=True)

    def _receive(self, stream: Any) -> Iterator[tuple[Path, str | None]]:
        """Handles one message of a run."""
        path, request = self.running[stream]
        try:
            message = self.ray.get(next(stream))
        except self.ray.exceptions.RayTaskError as error:  # errors of the run itself arrive as RunEnded
            message = RunEnded(_failed_start(error))
        except self.ray.exceptions.RayError as error:
            message = self._lost(path, request, type(error).__name__)
        except StopIteration:
            message = self._lost(path, request, "it ended without a message")
        if isinstance(message, str):
            self.hear(path, message)
            return
        del self.running[stream]
        if message is not None:
            yield path, message.problem

    def _lost(self, path: Path, request: RunRequest, how: str) -> RunEnded | None:
        """Queues the run again, or ends it when no retries are left."""
        if not self.retries_left[path]:
            return RunEnded(f"its worker died ({how}), also after {self.executor.retries} retries")
        self.retries_left[path] -= 1
        self.waiting.insert(0, (path, replace(request, again=True)))
        self.hear(path, f"its worker died ({how}); {how_resumed(request.plan)}")
        return None


def _require_listener(address: str) -> None:
    """Raises ConnectionError if nothing listens there: Ray would retry for minutes. Names such as "auto" pass."""
    with suppress(ValueError):  # an invalid port is reported by Ray
        place = urlsplit(f"//{address}")
        if place.hostname is not None and place.port is not None:
            try:
                socket.create_connection((place.hostname, place.port), CONNECT_SECONDS).close()
            except OSError as error:
                raise ConnectionError(sentence_of(error)) from error


@contextmanager
def _same_prol() -> Iterator[None]:
    """Processes started meanwhile import this prol, even if another one is installed."""
    root, before = str(Path(prol.__file__).parents[1]), os.environ.get("PYTHONPATH")
    if root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        yield  # installed: on PYTHONPATH its folder would precede the standard library
        return
    os.environ["PYTHONPATH"] = root if before is None else os.pathsep.join((root, before))
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _failed_start(error: Exception) -> str:
    """The last line of an error that a worker raised before the run started."""
    last = str(error).strip().splitlines()[-1]
    cure = ": install the same prol on all machines of the cluster" if "ModuleNotFoundError" in last else ""
    return f"its worker could not start ({last}){cure}"


@contextmanager
def _markers(paths: Iterable[Path]) -> Iterator[dict[Path, Path]]:
    """A file beside each run's folder by which a worker recognises that it shares the file system."""
    name = f".shared-{uuid.uuid4().hex}"
    markers = {path: path.resolve().parent / name for path in paths}
    try:
        for marker in set(markers.values()):
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
        yield markers
    finally:
        for marker in set(markers.values()):
            marker.unlink(missing_ok=True)


def _fits_somewhere(ray: Any, wanted: Mapping[str, float]) -> bool:
    machines = [machine["Resources"] for machine in ray.nodes() if machine["Alive"]]
    return any(all(has.get(name, 0) >= amount for name, amount in wanted.items()) for has in machines)


def require_ray() -> Any:
    """Imports ray, or says how to install it."""
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"{error.name} is missing: pip install 'prol[ray]'") from error
    return ray


@dataclass(frozen=True)
class RunRequest:
    """One run or job for a worker, and what the worker needs to check that it can do it.

    Args:
        path: absolute path of the run's folder.
        marker: a file beside the run's folder; a worker that cannot see it shares no files with the driver.
        source: `source_sha256()` of the driver.
        folder: the working directory for relative paths in the plan.
        cpus: reserved for this run.
        again: whether an earlier worker was lost during this run.
    """

    plan: Plan | Job
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
            problem = attempt(plan, request.path, Lines(messages.put))
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
        except UnsafeFile:
            raise
        except ValueError:
            time.sleep(0.2)
