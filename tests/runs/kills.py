"""Runs as commands of their own, killed at seeded random instants and resumed until they are done."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from prol import registry
from prol.runs import Plan, resume, start
from runs.small_runs import contents, environment, small_plan

PROL = [sys.executable, "-c", "from prol.cli.app import main; main()"]
TOO_LONG = 300
SMALL: dict[str, dict[str, Any]] = {
    "prol": {"blocks": 2},
    "prol_plus": {"budget_mb": 4, "blocks": 2},
    "randumb": {"features": 500},
    "gdumb": {"memory": 30, "epochs": 1},
    "ocm": {"memory": 30, "replay": 8, "rotations": 2},
    "onpro": {"memory": 30, "replay": 8, "rotations": 2, "close_pairs": 1},
    **{name: {"memory": 30, "replay": 8} for name in ("er", "derpp", "er_ace", "mose", "gsa", "esrm")},
    "ranpac": {"features": 2000},  # a checkpoint of 36 MB: large enough to be met while it is written
}


@dataclass(frozen=True)
class Kill:
    """One SIGKILL: seconds since the run was under way, those it could have come in, and what it met."""

    instant: float
    drawn_from: float
    chunks: int
    in_checkpoint: bool


@dataclass(frozen=True)
class Story:
    """What happened to one run, and which of its files ended unlike those of a run that was left alone."""

    method: str
    seed: int
    kills: list[Kill]
    different: list[str]

    def line(self) -> str:
        kills = [
            asdict(kill) | {"instant": round(kill.instant, 3), "drawn_from": round(kill.drawn_from, 3)}
            for kill in self.kills
        ]
        return json.dumps(
            {"method": self.method, "seed": self.seed, "kills": kills, "identical": not self.different}
            | ({"different": self.different} if self.different else {})
        )


def plan_for(backbone: str, method: str, per_class: int, device: str) -> Plan:
    if registry.method(method).from_scratch:
        backbone = "resnet18_cifar@4"
    options = SMALL.get(method, {})
    return small_plan(
        backbone, method, options=options, limit_per_class=per_class, checkpoint_every=3, workers=1, device=device
    )


def kill_and_compare(
    place: Path,
    backbone: str,
    method: str,
    kills: int,
    seed: int,
    per_class: int,
    one_in_checkpoint: bool = False,
    device: str = "cpu",
) -> Story:
    """Kills a run so many times, resumes it to its end, and compares it with one that was left alone.

    A run that ends before its instant has come is compared too, and another one begun.
    """
    plan, draw, folder = plan_for(backbone, method, per_class, device), random.Random(seed), place / "killed"
    whole = start(plan, place / "whole")
    # From the first event to the result, as the clock of the disk has it.
    duration = (whole.result.stat().st_mtime_ns - whole.config.stat().st_mtime_ns) / 1e9
    last = chunks_in(whole.events)
    done: list[Kill] = []
    different: set[str] = set()
    attempts = 0
    while len(done) < kills:
        attempts += 1
        assert attempts <= 5 * kills, f"{method} ended before it was killed, again and again: {done}"
        left = duration * (1 - chunks_in(folder / "events.jsonl") / (last + 1))
        instant = draw.uniform(0, left)
        with under_way(command(plan, folder)) as process:
            cut = one_in_checkpoint and not any(kill.in_checkpoint for kill in done)
            began = time.perf_counter()
            if cut:
                kill_in_checkpoint(process, folder)
                instant = time.perf_counter() - began
            else:
                kill_after(process, instant)
        if (folder / "result.json").exists():
            different |= differences(folder.rename(place / f"ended{attempts}"), whole.path)
            continue
        in_checkpoint = (folder / "checkpoint/.unfinished").exists()
        if in_checkpoint or not cut:
            done.append(Kill(instant, left, chunks_in(folder / "events.jsonl"), in_checkpoint))
    different |= differences(resume(folder).path, whole.path)
    return Story(method, seed, done, sorted(different))


def differences(folder: Path, whole: Path) -> set[str]:
    there, wanted = contents(folder), contents(whole)
    return {name for name in wanted if there[name] != wanted[name]}


def command(plan: Plan, folder: Path) -> list[str]:
    """`prol run` where nothing is yet, `prol resume` where a run has begun."""
    if (folder / "config.json").exists():
        return ["resume", str(folder)]
    options = [f"{name}={value}" for name, value in plan.options.items()]
    settings = {
        "backbone": plan.backbone,
        "device": plan.device,
        "threads": plan.threads,
        "workers": plan.workers,
        "limit-per-class": plan.limit_per_class,
        "tasks": plan.tasks,
        "chunk": plan.chunk,
        "checkpoint-every": plan.checkpoint_every,
        "checkpoint-share": plan.checkpoint_share,
        "out": folder,
    }
    given = [text for name, value in settings.items() for text in (f"--{name}", str(value))]
    return ["run", plan.method, plan.dataset, *options, *given]


@contextmanager
def under_way(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A command that has just said that it begins; it is gone afterwards."""
    process = subprocess.Popen(
        [*PROL, *arguments], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    guard = threading.Timer(TOO_LONG, process.kill)
    guard.start()
    assert process.stdout is not None
    try:
        said = ""
        while "writing to" not in said:
            line = process.stdout.readline()
            assert line, f"the command ended before its run began: {said}"
            said += line
        yield process
    finally:
        guard.cancel()
        process.kill()
        process.communicate()


def kill_after(process: subprocess.Popen[str], seconds: float) -> None:
    """Kills then, unless the process has come to its end before."""
    try:
        assert process.wait(seconds) == 0, "the command failed"
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def kill_in_checkpoint(process: subprocess.Popen[str], folder: Path) -> None:
    """Kills when a checkpoint is seen that is still being written, unless the process has come to its end before."""
    unfinished = folder / "checkpoint/.unfinished"
    while process.poll() is None and not unfinished.exists():
        time.sleep(0)  # the folder itself says when; the process may need the processor
    assert process.returncode in (None, 0), "the command failed"
    process.kill()
    process.wait()


def chunks_in(events: Path) -> int:
    """How many chunks a log tells of; the last line may be half of one."""
    return events.read_bytes().count(b'"ChunkLearnt"') if events.exists() else 0
