"""Files and folders that appear whole or not at all, and locks."""

from __future__ import annotations

import errno
import fcntl
import json
from pathlib import Path

import pytest

from prol.files import current_folder, locked_folder, make_folder, take_lock, write_file, write_folder, write_json


def fill_with(text: str):
    return lambda folder: (folder / "text").write_text(text)


def test_json_is_written_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_json(tmp_path / "value.json", {"name": "Käthe", "numbers": [1, 2.5]})
    assert json.loads((tmp_path / "value.json").read_text()) == {"name": "Käthe", "numbers": [1, 2.5]}
    assert [path.name for path in tmp_path.iterdir()] == ["value.json"]


def test_a_failed_write_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "value.json"
    write_json(path, "old")

    def fail(unfinished: Path) -> None:
        unfinished.write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_file(path, fail)
    assert json.loads(path.read_text()) == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["value.json"]


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_folder(tmp_path / "deep" / "place", fill_with("old"))
    write_folder(tmp_path / "deep" / "place", fill_with("new"))
    assert (tmp_path / "deep" / "place" / "text").read_text() == "new"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["place"]


def test_a_failed_fill_leaves_the_old_folder_as_it_was(tmp_path: Path) -> None:
    write_folder(tmp_path / "place", fill_with("old"))

    def fail(folder: Path) -> None:
        (folder / "text").write_text("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_folder(tmp_path / "place", fail)
    assert (tmp_path / "place" / "text").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_a_replacement_cut_off_between_its_two_steps_is_found_and_healed(tmp_path: Path) -> None:
    place = tmp_path / "place"
    write_folder(place, fill_with("old"))
    place.rename(tmp_path / ".place.previous")
    assert (current_folder(place) / "text").read_text() == "old"
    write_folder(place, fill_with("new"))
    assert current_folder(place) == place
    assert (place / "text").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


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
