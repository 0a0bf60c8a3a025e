"""Which folders are those of runs, at any depth and behind links."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prol.report.page.found import LeftOut

CONFIG, RESULT = "config.json", "result.json"


def run_folders(folders: Sequence[Path]) -> tuple[list[Path], list[LeftOut]]:
    """Every run at or below the folders, each once; and what could not be looked into."""
    places: list[Path] = []
    closed: list[LeftOut] = []
    seen: set[Path] = set()
    waiting = list(reversed(folders))
    while waiting:
        folder = waiting.pop()
        try:
            if not folder.is_dir() or folder.resolve() in seen:  # seen where a link leads to it or to one above
                continue
            seen.add(folder.resolve())
            if _is_run(folder):
                places.append(folder)
            else:
                waiting += sorted(folder.iterdir(), reverse=True)
        except OSError as error:
            closed.append(LeftOut(str(folder), f"it cannot be looked into: {reason_of(error)}"))
    return places, closed


def reason_of(error: OSError) -> str:
    """Why, without the number and the path."""
    return error.strerror or str(error)


def _is_run(folder: Path) -> bool:
    """Nothing within a run is looked into. A link counts even where it leads nowhere, so that it is told."""
    return any((folder / name).is_file() or (folder / name).is_symlink() for name in (CONFIG, RESULT))
