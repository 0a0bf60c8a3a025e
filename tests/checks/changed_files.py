"""Finished runs and saved learners whose files were changed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[dict[str, Any]], None]


def copier(run: Path, folder: Path) -> Callable[..., Path]:
    """Makes copies of a run in a folder, in which a function for each JSON file changes its content."""

    def copy(name: str = "run", **changes: Change) -> Path:
        place = folder / "runs" / name
        shutil.copytree(run, place)
        for file, change in changes.items():
            rewrite(place / f"{file}.json", change)
        return place

    return copy


def rewrite(path: Path, *changes: Change) -> None:
    content = json.loads(path.read_text())
    for change in changes:
        change(content)
    path.write_text(json.dumps(content))


def setting(*keys: str, to: Any) -> Change:
    def change(content: dict[str, Any]) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = to

    return change


def both(*changes: Change) -> Change:
    def change(content: dict[str, Any]) -> None:
        for one in changes:
            one(content)

    return change
