"""`operations.jsonl`: what was done to the classes of an artifact, and when.

A class that is gone is not named: a list of what was to be forgotten would remember it. A hash in its place would not
help, since names are few enough to be tried one by one. Whoever must prove what was removed gives a note of their own,
such as the number of a request.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prol.artifacts.meta import OPERATIONS_FILE
from prol.labels import Label

RENAMED, MERGED, REMOVED = "renamed", "merged", "removed"
JOINED = "joined"
"""Learners put together, unlike the others nothing that is done to a class."""


def operation(
    what: str, classes: int, name: Label | None = None, exact: bool | None = None, note: str = ""
) -> dict[str, Any]:
    """A line about what was done just now.

    Args:
        what: renamed, merged, removed or joined.
        classes: how many there are now.
        name: the class that there still is, which got a name or was merged into.
        exact: as in `Removal`.
        note: the user's own words.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line: dict[str, Any] = {"time": now, "what": what, "classes": classes}
    line |= {} if name is None else {"name": name}
    line |= {} if exact is None else {"exact": exact}
    return line | ({"note": note} if note else {})


def read_operations(folder: Path) -> list[dict[str, Any]]:
    """The lines of an artifact's folder; none where it has no such file."""
    file = folder / OPERATIONS_FILE
    if not file.is_file():
        return []
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {' '.join(str(error).split())}; repair it or take it away") from error
    if not all(isinstance(line, dict) and isinstance(line.get("what"), str) for line in lines):
        raise ValueError(f"{file} is damaged: a line does not say what was done; repair it or take it away")
    return lines


def write_operations(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    (folder / OPERATIONS_FILE).write_text(operations_text(lines), encoding="utf-8")


def operations_text(lines: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def without_gone_names(lines: Sequence[Mapping[str, Any]], classes: Sequence[Label]) -> list[dict[str, Any]]:
    """The lines without names of classes that are gone since: earlier lines must not remember them either."""
    return [{part: value for part, value in line.items() if part != "name" or value in classes} for line in lines]


def count_operations(lines: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How often what was done."""
    return dict(Counter(line["what"] for line in lines))
