"""Folders that cannot be written to, and locks that others hold or no file system grants."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from prol.files import locked_folder, make_folder, take_lock


def test_a_name_that_no_disk_takes_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"cannot write to .*\(File name too long\): see to it, or choose another --out"):
        make_folder(tmp_path / ("x" * 300))


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"file is a file: choose another --out"):
        make_folder(tmp_path / "file" / "below")


def test_only_a_lock_that_is_held_means_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with take_lock(tmp_path), pytest.raises(ValueError, match="another process is running in"):
        take_lock(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=r"cannot write to .*\(No locks available\)"), locked_folder(tmp_path):
        pass
