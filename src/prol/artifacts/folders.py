"""Folders that are given to be read or written to."""

from __future__ import annotations

from pathlib import Path


def require_folder(path: Path, give: str) -> None:
    """Something to be read must be a folder; `give` says which."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give {give}")
    if not path.is_dir():
        raise ValueError(f"{path} is a file: give {give}")


def make_folder(path: Path) -> None:
    """A folder to write to, with those above it, unless it is there."""
    above = next(place for place in (path, *path.parents) if place.exists())
    if not above.is_dir():
        raise ValueError(f"{above} is a file: choose another --out")
    path.mkdir(parents=True, exist_ok=True)
