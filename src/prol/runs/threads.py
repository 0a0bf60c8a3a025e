"""The processor threads of a run: as many as other processes leave free when it starts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median_low

import torch

_LOAD, _OWN_GROUP, _GROUPS = Path("/proc/loadavg"), Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
_SECONDS = 0.1


def free_threads() -> int:
    """torch's number of threads, or fewer where the process may not use, or others use, so many processors.

    A number in the environment (`OMP_NUM_THREADS`) is the user's choice and is not reduced.
    """
    if os.environ.get("OMP_NUM_THREADS") or os.environ.get("MKL_NUM_THREADS"):
        return torch.get_num_threads()
    limit = min(torch.get_num_threads(), available_processors())
    return thread_count(limit, os.cpu_count() or limit, running_elsewhere())


def thread_count(limit: int, processors: int, running: int) -> int:
    """The number of threads for a process that may use `limit` of the machine's processors.

    >>> thread_count(2, processors=2, running=1)
    1
    >>> thread_count(4, processors=64, running=30)
    4
    """
    return max(1, min(limit, processors - running))


def available_processors() -> int:
    """The processors that affinity and the quota of a container (cgroup v2) give to this process."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([affinity, *(int(quota) for quota in _quotas())]))


def running_elsewhere() -> int:
    """Threads of other processes that run or wait for a processor, on the whole machine.

    The median over a tenth of a second: the load average would notice a process only after a minute. There is no sleep
    between samples, so that runs that start at the same moment count each other.
    """
    counts: list[int] = []
    end = time.monotonic() + _SECONDS
    try:
        while not counts or time.monotonic() < end:
            counts.append(int(_LOAD.read_text(encoding="ascii").split()[3].partition("/")[0]))
        return max(0, median_low(counts) - 1)  # one of them is this process
    except (OSError, ValueError, IndexError):  # not Linux
        return round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Sums are split among threads, so their number determines the last bits of every result."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _quotas() -> Iterator[float]:
    """Processors that the control group of this process, and each group above it, may use."""
    try:
        lines = _OWN_GROUP.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    group = next((_GROUPS / line[3:].lstrip("/") for line in lines if line.startswith("0::")), _GROUPS)
    for folder in (group, *group.parents):
        try:
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
        except (OSError, ValueError):
            continue
        if quota != "max":
            yield int(quota) / int(period)
