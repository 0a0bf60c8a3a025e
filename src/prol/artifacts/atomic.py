"""Files and folders that appear whole or not at all, whatever kills the process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any


def write_file(path: Path, write: Callable[[Path], None]) -> None:
    """Lets `write` fill a file beside `path`, then puts it in place in one step."""
    unfinished = path.with_name(f".{path.name}.new")
    try:
        write(unfinished)
        publish(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def publish(finished: Path, path: Path) -> None:
    """Moves a finished file to its place in the same folder, in one step that outlasts a power cut."""
    _flush(finished)
    finished.replace(path)
    _flush(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    write_file(path, partial(_put, text))


def write_folder(folder: Path, fill: Callable[[Path], None]) -> None:
    """Lets `fill` build a folder beside `folder`, then puts it in place of what was there.

    A folder cannot be replaced in one step, so the old one waits under another name meanwhile; `current_folder` finds
    it there when the process died between the two steps.
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
    """Where the last whole content of a folder written by `write_folder` lies."""
    previous = _previous(folder)
    return previous if previous.exists() and not folder.exists() else folder


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
