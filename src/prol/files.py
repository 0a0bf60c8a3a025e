"""Files and folders that appear whole or not at all, and locks that end with their process.

A folder may come from elsewhere, with links and pipes where files are expected. Below a folder that a user names no
link is followed, only regular files are opened, and a file that is written is a new one.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal

from filelock import BaseFileLock, FileLock, Timeout

LOCK = ".lock"

_FLAGS = {"rb": os.O_RDONLY, "r+b": os.O_RDWR, "xb": os.O_WRONLY | os.O_CREAT | os.O_EXCL}
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
# Opening a pipe would wait for its other end.
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


class UnsafeFile(ValueError):
    """A link, or something else than a regular file, where a file is expected."""


def open_regular(path: Path, mode: Literal["rb", "r+b", "xb"] = "rb", follow: bool = False) -> IO[bytes]:
    """Opens a regular file to read, to change or as a new one; raises UnsafeFile for links, pipes and devices.

    A file to be changed must have no other name, under which it would change, too. With `follow`, links to regular
    files are opened.
    """
    try:
        handle = os.open(path, _FLAGS[mode] | _NO_WAITING | (0 if follow else _NO_LINKS), 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            require_regular(path)
        raise
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and not (mode == "r+b" and found.st_nlink > 1):
        return os.fdopen(handle, mode)
    os.close(handle)
    require_regular(path.resolve() if follow else path)
    raise UnsafeFile(f"{path} is a hard link, so that writing to it would change another file: copy the folder")


def read_text(path: Path) -> str:
    """The content of a regular file in UTF-8."""
    with open_regular(path) as file:
        return file.read().decode("utf-8")


def create_file(path: Path) -> IO[bytes]:
    """A new file, in place of whatever had its name: a link is removed, not followed."""
    path.unlink(missing_ok=True)
    return open_regular(path, "xb")


def require_regular(path: Path) -> None:
    """Refuses a path that is a link or no regular file; it may be missing."""
    if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
        kind = "a link, and none is followed here" if path.is_symlink() else "no regular file"
        raise UnsafeFile(f"{path} is {kind}: replace it by a file, or take it out")


def require_no_links(folder: Path, deep: bool = False) -> None:
    """Refuses a folder that is a link, or that holds one: writing through it would change something elsewhere.

    Args:
        folder: it may be missing.
        deep: whether to search folders in it as well, except `wandb`, where wandb makes links of its own.
    """
    require_real_folder(folder)
    for place, names, files in os.walk(folder):
        for path in sorted(Path(place, name) for name in (*names, *files)):
            if path.is_symlink():
                raise UnsafeFile(f"{path} is a link, and none is followed here: replace it by what it names")
        names[:] = [name for name in names if deep and (place, name) != (str(folder), "wandb")]


def require_real_folder(folder: Path) -> None:
    """Refuses a link; the folder may be missing."""
    if folder.is_symlink():
        raise UnsafeFile(f"{folder} is a link, and none is followed here: replace it by what it names")


def write_file(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a temporary file next to `path`, then moves it into place in one step."""
    unfinished = path.with_name(f".{path.name}.new")
    try:
        create_file(unfinished).close()
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
    require_regular(folder / LOCK)
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


def flush_names(folder: Path) -> None:
    """Forces a folder's list of names onto the disk."""
    _flush(folder)


def _flush(path: Path) -> None:
    """Forces a file's content, or a folder's list of names, onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
