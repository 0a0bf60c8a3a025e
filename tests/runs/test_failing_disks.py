from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from prol.evaluation import Event
from prol.runs import RunFolder, resume, start
from prol.runs.display import Silent
from runs.failing_disks import SmallDisk, lockable, small_disk
from runs.small_runs import contents, small_plan


class ActAfter(Silent):
    """Does something to the disk after some events."""

    def __init__(self, events: int, act: Callable[[], None]) -> None:
        self.left, self.act = events, act

    def __call__(self, event: Event, seconds: float) -> None:
        del event, seconds
        self.left -= 1
        if self.left == 0:
            self.act()


@pytest.fixture
def whole(finished: Callable[[str], Path]) -> Path:
    return finished("head_only")


def last_event(whole: Path) -> int:
    return len((whole / "events.jsonl").read_text().splitlines())


@pytest.mark.parametrize(("after", "may_mount"), [(2, True), (9, True), (9, False), (-1, True)])
def test_a_run_on_a_disk_that_fills_up_stops_and_goes_on_when_there_is_room(
    tmp_path: Path, micro_vit: str, whole: Path, command, after: int, may_mount: bool
) -> None:
    after = last_event(whole) if after == -1 else after
    with small_disk(tmp_path / "disk", may_mount) as disk:
        folder = disk.place / "run"
        with pytest.raises(OSError, match="cannot write to") as stopped:
            start(small_plan(micro_vit, "head_only"), folder, ActAfter(after, disk.fill))
        assert_tells_what_to_do(str(stopped.value), disk, folder)
        assert RunFolder(folder).status() == "unfinished"
        code, _, told = command("resume", str(folder))
        assert code == 2
        assert_tells_what_to_do(told.removeprefix("prol: "), disk, folder)
        disk.make_room()
        assert not (folder / "checkpoint/.unfinished").exists()
        resume(folder)
        assert contents(folder) == contents(whole)


def assert_tells_what_to_do(line: str, disk: SmallDisk, folder: Path) -> None:
    why = ("No space left on device", "make room") if disk.real else ("File too large", "raise the limit")
    assert line.startswith(f"cannot write to {folder} ({why[0]}): {why[1]}")
    assert line.strip().endswith(f"then continue with `prol resume {folder}`")


@pytest.mark.parametrize(("after", "may_mount"), [(6, True), (13, False)])
def test_a_run_whose_checkpoints_become_read_only_stops_and_goes_on_when_they_are_writable(
    tmp_path: Path, micro_vit: str, whole: Path, after: int, may_mount: bool
) -> None:
    folder = tmp_path / "run"
    with lockable(folder / "checkpoint", may_mount) as target:
        with pytest.raises(OSError, match="cannot write to") as stopped:
            start(small_plan(micro_vit, "head_only"), folder, ActAfter(after, target.lock))
        line = str(stopped.value)
        assert line.startswith(f"cannot write to {folder} ({target.why}): ")
        assert line.endswith(f"then continue with `prol resume {folder}`")
        assert ("make it writable again" in line) == (target.why != "File exists")
        assert RunFolder(folder).status() == "unfinished"
    resume(folder)
    assert contents(folder) == contents(whole)


def test_a_run_whose_folder_is_read_only_at_its_end_goes_on_when_it_is_writable(
    tmp_path: Path, micro_vit: str, whole: Path, command
) -> None:
    folder = tmp_path / "run"
    with lockable(folder) as target:
        with pytest.raises(OSError, match="cannot write to"):
            start(small_plan(micro_vit, "head_only"), folder, ActAfter(last_event(whole), target.lock))
        code, _, told = command("resume", str(folder))
        assert code == 2
        assert told.startswith("prol: ")
    resume(folder)
    assert contents(folder) == contents(whole)


def test_a_run_that_cannot_even_begin_says_to_start_again(tmp_path: Path, micro_vit: str) -> None:
    with small_disk(tmp_path / "disk") as disk:
        (disk.place / "run").mkdir()
        (disk.place / "run/.lock").touch()
        disk.fill()
        with pytest.raises(OSError, match="then start the run again"):
            start(small_plan(micro_vit), disk.place / "run")
        disk.make_room()
        done = start(small_plan(micro_vit), disk.place / "run")
        assert json.loads(done.result.read_text())["metrics"]
