"""Runs killed before every kind of file operation they make, resumed, killed again, resumed; reports which ended unlike
one that was never killed.

A process of its own, because it forks: children die by SIGKILL, the parent compares what they leave.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from prol.evaluation import Clock, Measures
from prol.runs import RunFolder, resume, start
from prol.runs.setup import set_up
from runs.small_runs import contents, small_plan

FILE_OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")
SAMPLED, LAST = 6, 8


def watch_operations(folder: Path, on_operation: Callable[[], None]) -> None:
    """Calls back before each file operation of this process inside the folder."""

    def hear(event: str, details: tuple[Any, ...]) -> None:
        if event in FILE_OPERATIONS and str(details[0]).startswith(str(folder)):
            on_operation()

    sys.addaudithook(hear)


def in_child(task: Callable[[], None]) -> bool:
    """Whether a child process came to the end of the task; False when it was killed."""
    child = os.fork()
    if child == 0:
        try:
            task()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise SystemExit("a child failed")
    return os.WIFEXITED(status)


def carry_on(folder: Path, backbone: str, kill_before: int) -> None:
    """Starts or resumes the run, and dies before the operation with that number (0: never)."""
    left = kill_before

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    watch_operations(folder, count)
    if RunFolder(folder).status() == "empty":
        start(plan(backbone), folder)
    else:
        resume(folder)


def plan(backbone: str) -> Any:
    return small_plan(
        backbone,
        "prol",
        limit_per_class=2,
        tasks=2,
        protocol="blurry",
        measures=Measures(points=3, shots=1, prequential=True),
        clock=Clock(rate=100, keep=1, step_seconds=(0.01, 0.2)),
    )


def count_operations(place: Path, backbone: str) -> int:
    def task() -> None:
        operations = [0]

        def count() -> None:
            operations[0] += 1

        watch_operations(place / "whole", count)
        start(plan(backbone), place / "whole")
        (place / "operations").write_text(str(operations[0]))

    assert in_child(task)
    return int((place / "operations").read_text())


def main(place: Path, backbone: str) -> None:
    torch.set_num_threads(1)
    set_up(plan(backbone))  # imports what the children need, once for all of them
    operations = count_operations(place, backbone)
    draw = random.Random(3)
    early = draw.sample(range(1, operations - LAST), SAMPLED)
    report: dict[str, Any] = {"operations": operations, "kills": 0, "different": []}
    for first in [*sorted(early), *range(operations - LAST, operations + 1)]:
        folder = place / f"killed{first}"
        report["kills"] += not in_child(lambda folder=folder, first=first: carry_on(folder, backbone, first))
        again = draw.randrange(1, operations - first // 2)
        report["kills"] += not in_child(lambda folder=folder, again=again: carry_on(folder, backbone, again))
        in_child(lambda folder=folder: carry_on(folder, backbone, 0))
        if contents(folder) != contents(place / "whole"):
            report["different"].append((first, again))
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
