"""Which folder is a run's own, where many runs write side by side and some have the same name."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from itertools import count
from pathlib import Path

from prol.integrations.trackers.memory import Memory
from prol.runs import RunInView

_OWNER = "prol_run.txt"
"""Beside the files of a run: the identity that the run's own folder remembers."""


def own_folder(shared: Path, run: RunInView, tracker: str, begun_before: Callable[[Path], bool]) -> Path:
    """`shared/NAME` for a run's name, `shared/NAME-2` and so on where other runs have it; the same one after a resume.

    Args:
        begun_before: whether a folder without an owner is this run's, from a time when owners were not noted.
    """
    shared, memory, name = shared.resolve(), Memory(run.folder, tracker), run.folder.resolve().name
    known = memory.read()
    mine, at = str(known.get("id") or uuid.uuid4().hex), Path(str(known.get("at", "")))
    if at.parent == shared and _owner(at) == mine:
        return at  # also where the run's folder has another name by now
    for number in count(1):
        place = shared / (name if number == 1 else f"{name}-{number}")
        if _is_new(place) or _owner(place) == mine or (_owner(place) is None and begun_before(place)):
            break
    (place / _OWNER).write_text(mine + "\n", encoding="utf-8")
    memory.write({"id": mine, "at": str(place)})
    return place


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
