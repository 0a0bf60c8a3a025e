"""Files and folders that appear whole or not at all, and locks that end with their process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, FileLock, Timeout

LOCK = ".lock"


def write_file(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a temporary file next to `path`, then moves it into place in one step."""
    unfinished = path.with_name(f".{path.name}.new")
    try:
        write(unfinished)
        publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def publish(finished: Path, path: Path) -> None:
    """Moves a finished file into place within its folder, in one step that survives a power failure."""
    _flush(finished)
    finished.replace(path)
    _flush(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def write_text(path: Path, text: str) -> None:
    write_file(path, partial(_put, text))


def write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Lets `fill` build a folder next to `folder`, then replaces the old one.

    A folder cannot be replaced in one step: the old one has another name in between. `current_folder` finds it there
    if the process died between the two steps.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished, previous = folder.with_name(f".{folder.name}.new"), _previous(folder)
    if previous.exists() and not folder.exists():
        previous.rename(folder)
    for leftover in (unfinished, previous):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        unfinished.mkdir()
        fill(unfinished)
        for part in [*unfinished.iterdir(), unfinished]:
            _flush(part)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    if folder.exists():
        folder.rename(previous)
    unfinished.rename(folder)
    _flush(folder.parent)
    shutil.rmtree(previous, ignore_errors=True)


def current_folder(folder: Path) -> Path:
    """The path of the last complete content of a folder written by `write_folder`."""
    previous = _previous(folder)
    return previous if previous.exists() and not folder.exists() else folder


def require_folder(path: Path, give: str) -> None:
    """Requires an existing folder to read; `give` says which one to give."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: give {give}")
    if not path.is_dir():
        raise ValueError(f"{path} is a file: give {give}")


def make_folder(path: Path) -> None:
    """Creates a folder and its parents, unless it exists."""
    with _writing_to(path):
        above = next(place for place in (path, *path.parents) if place.exists())
        if not above.is_dir():
            raise ValueError(f"{above} is a file: choose another --out")
        path.mkdir(parents=True, exist_ok=True)


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Creates a folder and holds its lock."""
    make_folder(folder)
    with _writing_to(folder):
        lock = take_lock(folder)
    try:
        yield
    finally:
        lock.release()


def take_lock(folder: Path) -> BaseFileLock:
    """The folder's lock, held until `release` or the end of the process; refused at once if another one holds it.

    File systems without locks raise OSError: a lock file that merely exists would outlive a killed process.
    """
    lock = FileLock(folder / LOCK, blocking=False, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"another process is running in {folder}: wait until it ends") from None
    return lock


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"cannot write to {folder} ({why}): see to it, or choose another --out") from error


def _previous(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.previous")


def _put(text: str, path: Path) -> None:
    path.write_text(text, encoding="utf-8")


def _flush(path: Path) -> None:
    """Forces a file's content, or a folder's list of names, onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
