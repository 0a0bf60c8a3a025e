"""Finding runs in folders and reading their files; what cannot be used is said, with the reason."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prol.artifacts.folders import require_folder
from prol.report.comparison import Content, RunFiles, compare_runs, stream_settings

_CONFIG, _RESULT, _TIMING, _STREAM, _COMPARISON = (
    f"{name}.json" for name in ("config", "result", "timing", "stream", "comparison")
)


@dataclass(frozen=True)
class ReadRun:
    """A finished run: where it lies, what its files hold, and, where it wrote that down, which class came when."""

    place: Path
    files: RunFiles
    presence: Content | None


@dataclass(frozen=True)
class LeftOut:
    """A run that is not in the report."""

    run: str
    reason: str


@dataclass(frozen=True)
class Found:
    """What lies in some folders."""

    runs: list[ReadRun]
    left_out: list[LeftOut]


def find_runs(folders: Sequence[Path]) -> Found:
    """Every run at or below the folders, each once; unfinished and damaged ones are named in `left_out`."""
    places: dict[Path, Path] = {}
    for folder in folders:
        require_folder(folder, "the folder of a run or one that holds runs")
        for place in _run_folders(folder):
            places.setdefault(place.resolve(), place)
    runs: list[ReadRun] = []
    left_out: list[LeftOut] = []
    for place in places.values():
        try:
            runs.append(_read_run(place))
        except (ValueError, OSError) as error:
            left_out.append(LeftOut(str(place), str(error)))
    if not runs:
        reasons = "; ".join(f"{one.run}: {one.reason}" for one in left_out[:3])
        raise ValueError(
            f"there is no finished run in {', '.join(map(str, folders))}{f' ({reasons})' if reasons else ''}: "
            "give the folder of a run or one that holds runs"
        )
    return Found(runs, left_out)


def _run_folders(folder: Path) -> list[Path]:
    """The folder itself where it is a run, else those below it; nothing within a run is looked into."""
    if any((folder / name).is_file() for name in (_CONFIG, _RESULT)):
        return [folder]
    below = sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    return [place for path in below for place in _run_folders(path)]


def _read_run(place: Path) -> ReadRun:
    if not (place / _CONFIG).is_file():
        raise ValueError("it has no config.json, which says what was run")
    if not (place / _RESULT).is_file():
        raise ValueError(f"not finished: go on with `prol resume {place}`")
    files = RunFiles(
        folder=place.resolve().name,
        config=_content(place / _CONFIG),
        result=_content(place / _RESULT),
        timing=_content(place / _TIMING) if (place / _TIMING).is_file() else None,
        side_by_side=_had_company(place),
    )
    _require_whole(files)
    return ReadRun(place, files, _presence(place / _STREAM, files))


def _content(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
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
        lengths = {len([int(count) for count in row.split()]) for row in content["presence"]}
        starts = [int(start) for start in content["task_starts"]]
        classes = [name for task in files.result["task_classes"] for name in task]
        fits = content["classes"] == classes and len(content["presence"]) == len(classes) and len(lengths) == 1
        return content if fits and 0 not in lengths and starts else None
    except (KeyError, TypeError, AttributeError, ValueError):
        return None


def _require_whole(files: RunFiles) -> None:
    """Whatever a report needs is read once, so that a strange file harms nothing but its own run."""
    try:
        stream_settings(files.config)
        compare_runs([files])
        matrix, tasks = files.result["accuracy_matrix"], len(files.result["task_classes"])
        lengths = {tasks, len(matrix), len(files.result["test_sizes"]), *map(len, matrix)}
        lengths |= {len(files.result["metrics"][name]) for name in ("average_accuracy", "forgetting_history")}
        numbers = [*(value for row in matrix for value in row), *files.result["metrics"]["forgetting_history"]]
        if lengths != {tasks} or not all(isinstance(value, int | float) for value in numbers):
            raise ValueError("its tables do not fit together")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        what = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"its files are damaged or of another version of prol ({what})") from error


def _had_company(place: Path) -> bool:
    """Whether a comparison in the folder above wrote down that other runs were at work at the same time."""
    try:
        known = json.loads((place.resolve().parent / _COMPARISON).read_text(encoding="utf-8"))["side_by_side"]
        return bool(known.get(place.resolve().name, False))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
