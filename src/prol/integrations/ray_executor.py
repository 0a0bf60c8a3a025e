"""Runs on a Ray cluster: one that is there, or one of this machine alone. Needs the extra `ray`."""

from __future__ import annotations

import math
import os
import socket
import sysconfig
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import prol
from prol.integrations.ray_worker import Errand, Over, source_sha256, work
from prol.runs import Plan
from prol.runs.executors import RETRIES, require_jobs, require_retries, sentence_of

KNOCK_SECONDS = 10.0


@dataclass(frozen=True)
class RayExecutor:
    """One Ray task a run. A run whose worker dies goes on from its last checkpoint in another.

    The folders of the runs must lie on a file system that all machines of the cluster share.

    Args:
        address: of a cluster, "auto" for the one this machine belongs to; None begins one on this machine, and ends
            it afterwards. Where Ray is at work in this process already, that cluster is used.
        cpus: set aside for each run; the threads of a run that does not say how many.
        gpus: set aside for each run; 0.25 lets four runs share one.
        memory: gigabytes set aside for each run.
        retries: how often a run is taken up again after its worker died.
        jobs: the most runs at work at a time; as many as there is room for when None.
    """

    address: str | None = None
    cpus: float = 1
    gpus: float = 0
    memory: float | None = None
    retries: int = RETRIES
    jobs: int | None = None

    def __post_init__(self) -> None:
        require_retries(self.retries)
        if self.jobs is not None:
            require_jobs(self.jobs)
        if not 0 < self.cpus < math.inf:
            raise ValueError(f"cpus must be above 0, got {self.cpus}")
        if not 0 <= self.gpus < math.inf or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise ValueError(f"gpus must be a part of one or a whole number, got {self.gpus}")
        if self.memory is not None and not 0 < self.memory < math.inf:
            raise ValueError(f"memory must be above 0 gigabytes, got {self.memory}")
        if self.address is not None and self.address.startswith("ray://"):
            raise ValueError(
                f"{self.address} is for programs outside a cluster, which share no files with it: call this on a "
                "machine of the cluster, with auto as its address"
            )

    def execute(
        self, pending: Mapping[Path, Plan], hear: Callable[[Path, str], None]
    ) -> Generator[tuple[Path, str | None], None, None]:
        if not pending:
            return
        ray = require_ray()
        with self._connected(ray), _markers(pending) as markers:
            if not _fits_somewhere(ray, self._resources()):
                hear(next(iter(pending)), f"no machine of the cluster has {self._wanted()} yet: waiting for one")
            errands = [
                Errand(plan, path.resolve(), markers[path], source_sha256(), Path.cwd(), self.cpus)
                for path, plan in pending.items()
            ]
            yield from _Rounds(ray, self, dict(zip(pending, errands, strict=True)), hear).settle()

    def _resources(self) -> dict[str, float]:
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
                _knock(self.address)
                ray.init(self.address, **quiet)
        except (ConnectionError, RuntimeError) as error:
            raise ValueError(
                f"no Ray cluster lets us in at {self.address}: begin one with `ray start --head`, or leave the address "
                f"out; where it asks for a token, set RAY_AUTH_MODE=token ({sentence_of(error)})"
            ) from error
        try:
            if self.address is None and not _fits_somewhere(ray, self._resources()):
                raise ValueError(f"this machine has less than {self._wanted()}: ask for less, or name a cluster")
            yield
        finally:
            ray.shutdown()


class _Rounds:
    """Runs that wait, runs at work, and those that are taken up again."""

    def __init__(
        self, ray: Any, asked: RayExecutor, errands: Mapping[Path, Errand], hear: Callable[[Path, str], None]
    ) -> None:
        self.ray, self.asked, self.hear = ray, asked, hear
        self.waiting = list(errands.items())
        self.left = dict.fromkeys(errands, asked.retries)
        self.at_work: dict[Any, tuple[Path, Errand]] = {}
        # Ray's own retries would not say that they happen, and would tell a run's lines twice.
        self.remote = ray.remote(
            num_cpus=asked.cpus,
            num_gpus=asked.gpus,
            memory=None if asked.memory is None else int(asked.memory * 1e9),
            max_retries=0,
            num_returns="streaming",
        )(work)

    def settle(self) -> Generator[tuple[Path, str | None], None, None]:
        try:
            while self.waiting or self.at_work:
                while self.waiting and len(self.at_work) < (self.asked.jobs or math.inf):
                    path, errand = self.waiting.pop(0)
                    self.at_work[self.remote.remote(errand)] = (path, errand)
                (ready, *_), _ = self.ray.wait(list(self.at_work), num_returns=1)
                yield from self._listen(ready)
        finally:
            for stream in self.at_work:
                with suppress(Exception):  # one that ends meanwhile, or a cluster that is gone
                    self.ray.cancel(stream, force=True)

    def _listen(self, stream: Any) -> Iterator[tuple[Path, str | None]]:
        """Takes one word from a run."""
        path, errand = self.at_work[stream]
        try:
            word = self.ray.get(next(stream))
        except self.ray.exceptions.RayTaskError as error:  # the run's own errors come as a last word
            word = Over(_in_short(error))
        except self.ray.exceptions.RayError as error:
            word = self._lost(path, errand, type(error).__name__)
        except StopIteration:
            word = self._lost(path, errand, "it ended without a word")
        if isinstance(word, str):
            self.hear(path, word)
            return
        del self.at_work[stream]
        if word is not None:
            yield path, word.problem

    def _lost(self, path: Path, errand: Errand, how: str) -> Over | None:
        """None where the run is taken up again."""
        if not self.left[path]:
            return Over(f"its worker died ({how}), also after {self.asked.retries} retries")
        self.left[path] -= 1
        self.waiting.insert(0, (path, replace(errand, again=True)))
        self.hear(path, f"its worker died ({how}); going on from its last checkpoint")
        return None


def _knock(address: str) -> None:
    """Raises ConnectionError where nothing listens: Ray would try for minutes. Names such as "auto" are left to Ray."""
    with suppress(ValueError):  # no number for a port: Ray says so
        place = urlsplit(f"//{address}")
        if place.hostname is not None and place.port is not None:
            try:
                socket.create_connection((place.hostname, place.port), KNOCK_SECONDS).close()
            except OSError as error:
                raise ConnectionError(sentence_of(error)) from error


@contextmanager
def _same_prol() -> Iterator[None]:
    """Processes begun meanwhile import this prol, also where another one is installed."""
    root, before = str(Path(prol.__file__).parents[1]), os.environ.get("PYTHONPATH")
    if root in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        yield  # they find it there; named first, its folder would come before Python's own modules
        return
    os.environ["PYTHONPATH"] = root if before is None else os.pathsep.join((root, before))
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _in_short(error: Exception) -> str:
    """The last line of what went wrong in a worker before a run could say so itself."""
    last = str(error).strip().splitlines()[-1]
    cure = ": install the same prol on all machines of the cluster" if "ModuleNotFoundError" in last else ""
    return f"its worker could not begin ({last}){cure}"


@contextmanager
def _markers(paths: Mapping[Path, Plan]) -> Iterator[dict[Path, Path]]:
    """A file beside each run's folder by which a worker knows that it sees the same folders."""
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
    """The package; a clear word where it is missing."""
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"{error.name} is missing: pip install 'prol[ray]'") from error
    return ray
