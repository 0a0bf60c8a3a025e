"""One run among many: kept if it is there, taken up again if it was stopped, refused if it is another one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prol.runfiles import DamagedFile, RunFiles
from prol.runfiles import read_run as read_files
from prol.runs import Display, Plan, RunFolder, resume, start
from prol.runs.folder import DamagedRun
from prol.runs.setup import changes, set_up


def settle(plan: Plan, path: Path, display: Display) -> RunFolder:
    """The finished run of this plan in a folder, whatever of it has still to be done."""
    run = RunFolder(path)
    if run.status() in ("empty", "something else"):
        return start(plan, path, display)
    require_same_plan(plan, set_up(plan).config, run)
    return resume(path, display)


def within(plan: Plan, path: Path, cpus: float) -> Plan:
    """The plan with no more threads than its share of the processors, unless it says how many.

    A run that has begun goes on with the threads it has.
    """
    if RunFolder(path).config.is_file():
        return plan
    whole = max(1, int(cpus))
    return replace(
        plan,
        threads=whole if plan.threads is None else plan.threads,
        workers=max(1, whole // 2) if plan.workers is None else plan.workers,
    )


def attempt(plan: Plan, path: Path, display: Display) -> str | None:
    """Settles a run; gives what kept it from finishing as one sentence, None if nothing did."""
    try:
        settle(plan, path, display)
    except Exception as error:
        return sentence_of(error)
    return None


def sentence_of(error: Exception) -> str:
    """An error in words; PROL_DEBUG=1 raises it instead."""
    if os.environ.get("PROL_DEBUG") == "1":
        raise error
    return in_words(error)


def in_words(error: BaseException) -> str:
    """An error on one line, with its kind unless it is a mistake of the caller."""
    words = " ".join(str(error).split())
    return words if isinstance(error, ValueError | OSError) and words else f"{type(error).__name__}: {words}"


def read_run(run: RunFolder) -> RunFiles:
    """The contents of a finished run, with its times."""
    run.read(run.timing)
    try:
        return replace(read_files(run.path), folder=run.path.name)
    except DamagedFile as error:
        raise damaged(run, error) from error


def damaged(run: RunFolder, error: Exception) -> DamagedRun:
    """What to say of a run whose files are there and cannot be made sense of."""
    return DamagedRun(
        f"{run.path} is damaged or of another version of prol ({error!r}): move {run.path} away and start the run again"
    )


def require_same_plan(plan: Plan, asked: Mapping[str, Any], run: RunFolder) -> None:
    """A run found in a folder must be the one that is planned, whose config is `asked` here.

    What the plan leaves to the machine may have been settled by another one.
    """
    left_open = {name for name in ("threads", "workers") if getattr(plan, name) is None}
    left_open |= {name for name in ("device", "precision") if getattr(plan, name) == "auto"}
    for name, (there, wanted) in changes(run.read(run.config), asked).items():
        if not name.startswith("versions.") and name not in left_open:
            raise ValueError(
                f"{run.path} holds a run with {name} {there!r}, asked for is {wanted!r}: choose another --out"
            )
