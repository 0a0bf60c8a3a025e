"""Finding runs in folders and reading their files; what cannot be used is said, with the reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prol.files import require_folder
from prol.report.comparison import Content, RunFiles
from prol.report.page.checking import MOST, require_whole
from prol.report.page.folders import CONFIG, RESULT, reason_of, run_folders
from prol.report.page.found import Found, LeftOut, ReadRun

_TIMING, _STREAM = "timing.json", "stream.json"
_SUMMARIES = ("comparison.json", "sweep.json")


def find_runs(folders: Sequence[Path]) -> Found:
    """Every run at or below the folders, each once; unfinished and damaged ones are named in `left_out`."""
    for folder in folders:
        require_folder(folder, "the folder of a run or one that holds runs")
    places, left_out = run_folders(folders)
    runs: list[ReadRun] = []
    for place in places:
        try:
            runs.append(_read_run(place))
        except OSError as error:
            left_out.append(LeftOut(str(place), f"its files cannot be read: {reason_of(error)}"))
        except ValueError as error:
            left_out.append(LeftOut(str(place), str(error)))
    if not runs:
        reasons = "; ".join(f"{one.run}: {one.reason}" for one in left_out[:3])
        raise ValueError(
            f"there is no finished run in {', '.join(map(str, folders))}{f' ({reasons})' if reasons else ''}: "
            "give the folder of a run or one that holds runs"
        )
    return Found(runs, left_out)


def _read_run(place: Path) -> ReadRun:
    if not (place / CONFIG).is_file():
        raise ValueError("it has no config.json, which says what was run")
    if not (place / RESULT).is_file():
        raise ValueError(f"not finished: go on with `prol resume {place}`")
    files = RunFiles(
        folder=place.resolve().name,
        config=_content(place / CONFIG),
        result=_content(place / RESULT),
        timing=_content(place / _TIMING) if (place / _TIMING).is_file() else None,
        side_by_side=_had_company(place),
    )
    run = ReadRun(place, files, _presence(place / _STREAM, files))
    require_whole(run)
    return run


def _content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise ValueError(f"{file.name} is damaged")
    return content


def _presence(file: Path, files: RunFiles) -> Content | None:
    """Which class came when; without a file that fits the run, the report does without."""
    if not file.is_file():
        return None
    try:
        content = _content(file)
        counts = [[int(count) for count in row.split()] for row in content["presence"]]
        classes = [name for task in files.result["task_classes"] for name in task]
        fits = content["classes"] == classes and len(counts) == len(classes) and len(set(map(len, counts))) == 1
        every = [count for row in counts for count in row]
        counted = bool(every) and min(every) >= 0 and 0 < sum(every) <= MOST
        starts = content["task_starts"]
        started = bool(starts) and all(isinstance(start, int) and 0 <= start <= MOST for start in starts)
        return content if fits and counted and started else None
    except (OSError, KeyError, TypeError, AttributeError, ValueError):
        return None


def _had_company(place: Path) -> bool:
    """Whether a comparison or a sweep in the folder above wrote down that other runs were at work at the same time."""
    return any(_said_of(place.resolve(), name) for name in _SUMMARIES)


def _said_of(place: Path, summary: str) -> bool:
    try:
        known = json.loads((place.parent / summary).read_text(encoding="utf-8"))["side_by_side"]
        return bool(known.get(place.name, False))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False
