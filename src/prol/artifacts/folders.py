"""Folders that are given to be read or written to."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

LOCK = ".lock"


def require_folder(path: Path, give: str) -> None:
    """Something to be read must be a folder; `give` says which."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give {give}")
    if not path.is_dir():
        raise ValueError(f"{path} is a file: give {give}")


def make_folder(path: Path) -> None:
    """A folder to write to, with those above it, unless it is there."""
    with _writing_to(path):
        above = next(place for place in (path, *path.parents) if place.exists())
        if not above.is_dir():
            raise ValueError(f"{above} is a file: choose another --out")
        path.mkdir(parents=True, exist_ok=True)


@contextmanager
def at_work_in(folder: Path) -> Iterator[None]:
    """Makes a folder for the runs of an experiment, and keeps other experiments out of it meanwhile."""
    make_folder(folder)
    with _writing_to(folder):
        lock = take_lock(folder)
    with lock:
        yield


def take_lock(folder: Path) -> TextIO:
    """Keeps other processes out until what is returned is closed; it goes with the process, however that ends."""
    lock = (folder / LOCK).open("w")
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise ValueError(f"another process is at work in {folder}: wait until it ends") from None
        except OSError:  # a file system without locks, say
            lock.close()
            raise
    return lock


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"cannot write to {folder} ({why}): see to it, or choose another --out") from error
