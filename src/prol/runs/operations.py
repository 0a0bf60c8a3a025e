"""`operations.jsonl`: what was done to the classes of a saved learner, and when.

A removed class is not named: a list of what was to be forgotten would remember it. A hash would not help, since names
are few enough to be tried one by one. To prove a removal, give a note, such as the number of a request.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prol.classes import Label
from prol.runs.format import OPERATIONS_FILE

RENAMED, MERGED, REMOVED = "renamed", "merged", "removed"
JOINED = "joined"
"""Learners were merged; the other operations change classes."""


def operation(
    what: str, classes: int, name: Label | None = None, exact: bool | None = None, note: str = ""
) -> dict[str, Any]:
    """A line about an operation performed now.

    Args:
        what: renamed, merged, removed or joined.
        classes: the number of classes afterwards.
        name: the remaining class, which was renamed or merged into.
        exact: as in `Removal`.
        note: the user's note.
    """
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line: dict[str, Any] = {"time": now, "what": what, "classes": classes}
    line |= {} if name is None else {"name": name}
    line |= {} if exact is None else {"exact": exact}
    return line | ({"note": note} if note else {})


def read_operations(folder: Path) -> list[dict[str, Any]]:
    """The lines in a folder; none if it has no such file."""
    file = folder / OPERATIONS_FILE
    if not file.is_file():
        return []
    try:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {' '.join(str(error).split())}; repair or remove it") from error
    if not all(isinstance(line, dict) and isinstance(line.get("what"), str) for line in lines):
        raise ValueError(f"{file} is damaged: a line does not say what was done; repair or remove it")
    return lines


def operations_text(lines: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def without_gone_names(lines: Sequence[Mapping[str, Any]], classes: Sequence[Label]) -> list[dict[str, Any]]:
    """The lines without names of classes removed since: earlier lines must not remember them either."""
    return [{part: value for part, value in line.items() if part != "name" or value in classes} for line in lines]


def count_operations(lines: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The number of operations of each kind."""
    return dict(Counter(line["what"] for line in lines))
