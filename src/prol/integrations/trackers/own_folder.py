"""Which folder is a run's own, where many runs write side by side and some have the same name."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from prol.integrations.trackers.memory import Memory
from prol.runs import RunFolder, RunInView

_OWNER = "prol_run.txt"
"""Beside the files of a run: the identity that the run's own folder remembers."""


def own_folder(shared: Path, run: RunInView, tracker: str, begun_before: Callable[[Path], bool]) -> Path:
    """`shared/NAME` for a run's name, `shared/NAME-2` and so on where other runs have it; the same one after a resume.

    Args:
        begun_before: whether a folder without an owner is this run's, from a time when owners were not noted.
    """
    here, shared, memory = run.folder.resolve(), shared.resolve(), Memory(run.folder, tracker)
    known = {} if _is_copy(memory.read(), here) else memory.read()
    mine, at = str(known.get("id") or uuid.uuid4().hex), Path(str(known.get("at", "")))
    if at.parent == shared and _owner(at) == mine:
        memory.write({"id": mine, "at": str(at), "run": str(here)})  # its folder may have another name by now
        return at
    for number in count(1):
        place = shared / (here.name if number == 1 else f"{here.name}-{number}")
        if _is_new(place) or _owner(place) == mine or (_owner(place) is None and begun_before(place)):
            break
    (place / _OWNER).write_text(mine + "\n", encoding="utf-8")
    memory.write({"id": mine, "at": str(place), "run": str(here)})
    return place


def _is_copy(known: Mapping[str, Any], here: Path) -> bool:
    """Whether what a run remembers is of another run that still lies where it was; one that was moved does not."""
    run = Path(str(known.get("run", here)))
    return run != here and RunFolder(run).config.is_file()


def _is_new(place: Path) -> bool:
    """Of two runs that begin at the same time only one makes the folder."""
    try:
        place.mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def _owner(place: Path) -> str | None:
    try:
        return (place / _OWNER).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
