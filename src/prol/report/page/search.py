"""Finding runs in folders; what cannot be used is named with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from prol.files import require_folder
from prol.runfiles import CONFIG, RESULT, RunFiles, read_run
from prol.typed_json import DamagedFile


@dataclass(frozen=True)
class LeftOut:
    """A run that is not in the report, or a folder that was not searched."""

    run: str
    reason: str


@dataclass(frozen=True)
class FoundRuns:
    """The runs in some folders, and what was left out."""

    runs: list[RunFiles]
    left_out: list[LeftOut]


def find_runs(folders: Sequence[Path]) -> FoundRuns:
    """Every run at or below the folders, each once; unfinished and damaged ones are named in `left_out`."""
    for folder in folders:
        require_folder(folder, "the folder of a run or one that holds runs")
    places, left_out = _run_folders(folders)
    runs: list[RunFiles] = []
    for place in places:
        try:
            runs.append(_read(place))
        except OSError as error:
            left_out.append(LeftOut(str(place), f"its files cannot be read: {_reason(error)}"))
        except DamagedFile as error:
            left_out.append(LeftOut(str(place), error.reason))
        except ValueError as error:
            left_out.append(LeftOut(str(place), str(error)))
    if not runs:
        reasons = "; ".join(f"{one.run}: {one.reason}" for one in left_out[:3])
        raise ValueError(
            f"there is no finished run in {', '.join(map(str, folders))}{f' ({reasons})' if reasons else ''}: "
            "give the folder of a run or one that holds runs"
        )
    return FoundRuns(runs, left_out)


def _run_folders(given: Sequence[Path]) -> tuple[list[Path], list[LeftOut]]:
    """Every run at or below the given folders, each once; and the folders that were not searched.

    A link may lead to a run anywhere. A link to any other folder is not searched: inside the given folders it is found
    at its own place, and outside the search would have no bound.
    """
    places: list[Path] = []
    left_out: list[LeftOut] = []
    seen: set[Path] = set()
    roots = [folder.resolve() for folder in given]
    waiting = list(reversed(given))
    while waiting:
        folder = waiting.pop()
        try:
            if not folder.is_dir() or (real := folder.resolve()) in seen:
                continue
            if _is_run(folder):
                seen.add(real)
                places.append(folder)
            elif not folder.is_symlink() or folder in given:
                seen.add(real)
                waiting += sorted(folder.iterdir(), reverse=True)
            elif not any(real.is_relative_to(root) for root in roots):
                left_out.append(LeftOut(str(folder), f"it is a link to another folder: give {real} to search it"))
        except OSError as error:
            left_out.append(LeftOut(str(folder), f"it cannot be searched: {_reason(error)}"))
    return places, left_out


def _is_run(folder: Path) -> bool:
    """Nothing within a run is searched. A broken link counts as its file, so that the run is named."""
    return any((folder / name).is_file() or (folder / name).is_symlink() for name in (CONFIG, RESULT))


def _read(place: Path) -> RunFiles:
    if not (place / CONFIG).is_file():
        raise ValueError("it has no config.json, which says what was run")
    if not (place / RESULT).is_file():
        raise ValueError(f"not finished: resume it with `prol resume {place}`")
    return read_run(place)


def _reason(error: OSError) -> str:
    """The error without its number and path."""
    return error.strerror or str(error)
