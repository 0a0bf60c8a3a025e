"""Sweeps on a Ray cluster of this machine, a worker of which is killed while it is in the middle of a run."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prol.integrations.ray_executor import RayExecutor
from prol.runs.display import Silent
from prol.runs.executors import Serial
from prol.runs.grid import GridPoint, Request, points_of
from prol.runs.sweep import sweep
from runs.small_runs import contents

_PROCESS = re.compile(r"^(\S+): running in process (\d+) ")
_TASK = re.compile(r"^(\S+): task 1/3: ")
_ENDED = re.compile(r"^(\S+) (?:finished|failed: .*) \((\d+) of \d+ runs")


@dataclass
class Killer:
    """Listens to a sweep; once enough runs have ended, kills the worker of a run whose first task has ended.

    A run that ends nevertheless does not count. Then the next one is killed, not earlier, since a death is reported
    later than lines that other runs send meanwhile.
    """

    after: int
    over: int = 0
    struck: str | None = None
    processes: dict[str, int] = field(default_factory=dict)
    killed: list[dict[str, Any]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        if running := _PROCESS.match(line):
            self.processes[running[1]] = int(running[2])
        if ended := _ENDED.match(line):
            self.over = int(ended[2])
            if ended[1] == self.struck and not self.resumed():
                self.struck = None
        met = _TASK.match(line)
        if met and self.over >= self.after and self.struck is None:
            self.struck = met[1]
            os.kill(self.processes[met[1]], signal.SIGKILL)
            self.killed.append({"run": met[1], "runs_over_before": self.over})

    def resumed(self) -> list[str]:
        return [line for line in self.lines if "its worker died" in line]

    def resumed_after(self) -> list[int]:
        """The chunks up to which killed runs had checkpoints."""
        found = (re.search(r"resuming after chunk (\d+)", line) for line in self.lines)
        return [int(match[1]) for match in found if match]


def small_points(vit: str, methods: Sequence[str], grid: dict[str, Any], seeds: Sequence[int]) -> list[GridPoint]:
    settings: dict[str, Any] = {
        "backbone": vit,
        "device": "cpu",
        "tasks": 3,
        "limit_per_class": 5,
        "checkpoint_every": 2,
        "checkpoint_share": 1.0,
        "threads": 1,
        "workers": 1,
    }
    return points_of(Request(methods, ["digits"], seeds, grid, settings))


def sweep_and_kill(
    points: list[GridPoint], place: Path, after: int, executor: RayExecutor
) -> tuple[Killer, dict[str, Any]]:
    """Runs the same sweep on Ray, with a kill, and one by one; the second is what was found."""
    killer, began = Killer(after), time.perf_counter()
    on_ray = sweep(points, place / "ray", executor, killer)
    middle = time.perf_counter()
    serial = sweep(points, place / "serial", Serial(Silent()))
    ended = time.perf_counter()
    finished = [run.folder for run in serial.runs if run.state == "finished"]
    different = [run for run in finished if contents(place / "ray" / run) != contents(place / "serial" / run)]
    by_name = {run.folder: run for run in on_ray.runs}
    killed = [
        {name: getattr(by_name[kill["run"]], name) for name in ("method", "options", "condition", "seed")}
        | {"runs_over_before": kill["runs_over_before"]}
        for kill in killer.killed
    ]
    return killer, {
        "runs": len(points),
        "finished_on_ray": sum(run.state == "finished" for run in on_ray.runs),
        "finished_one_by_one": len(finished),
        "workers_killed": killed,
        "runs_taken_up_again": len(killer.resumed()),
        "went_on_after_chunk": killer.resumed_after(),
        "runs_that_differ": different,
        "failures": on_ray.failures(),
        "seconds_on_ray": round(middle - began, 1),
        "seconds_one_by_one": round(ended - middle, 1),
    }
