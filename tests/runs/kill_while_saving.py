"""Saves over an artifact again and again, each time killed one file operation later, and reports what was left.

"whole" replaces the folder, "into" the files in a folder that holds something else too.

A process of its own, because it forks: the child dies by SIGKILL, the parent loads what it finds.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import prol
from golden_files import tiny_vit
from prol.learner import Learner
from prol.runs.saving import save_into
from prol.testing.stream import STREAM, difference, teach

FILE_OPERATIONS = ("open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree")


def kill_before_operation(number: int) -> None:
    """From now on, the file operation with this number is the last thing this process tries to do."""
    left = number

    def count(event: str, _: tuple[Any, ...]) -> None:
        nonlocal left
        if event in FILE_OPERATIONS:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def save_whole(learner: Learner, folder: Path) -> None:
    learner.save(folder)


def save_beside(learner: Learner, folder: Path) -> None:
    save_into(learner, folder, announce=[].append)


def main(place: Path, save: Callable[[Learner, Path], None]) -> None:
    torch.set_num_threads(1)
    backbone = tiny_vit()
    old = teach(prol.create("head_only", backbone), STREAM[:1])
    new = teach(old.clone(), STREAM[1:2])
    report: dict[str, Any] = {"kills": 0, "old": 0, "new": 0, "broken": []}
    save(old, place / "saved")
    while True:
        child = os.fork()
        if child == 0:
            kill_before_operation(report["kills"] + 1)
            save(new, place / "saved")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        found = prol.load(place / "saved", backbone)
        if difference(found.state(), old.state()) == "":
            report["old"] += 1
        elif difference(found.state(), new.state()) == "":
            report["new"] += 1
        else:
            report["broken"].append(report["kills"])
        if not os.WIFSIGNALED(status):
            break
        report["kills"] += 1
        save(old, place / "saved")
    print(json.dumps(report))


if __name__ == "__main__":
    main(Path(sys.argv[1]), {"whole": save_whole, "into": save_beside}[sys.argv[2]])
