"""Runs that share one folder of event files, also those of the same name."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from integrations.read_back import tensorboard_numbers, tensorboard_text
from integrations.test_trackers import Noting
from prol.integrations.trackers import TensorBoard, _own_folder
from prol.runs import RunFolder, resume, start
from runs.small_runs import small_plan


def run_in(folder: Path) -> Any:
    """As much of a run as the choice of its folder depends on."""
    folder.mkdir(parents=True, exist_ok=True)
    RunFolder(folder).config.touch()
    return SimpleNamespace(folder=folder)


def require_whole(place: Path, out: Path) -> None:
    """Event files of this run alone, with each task and each chunk once."""
    written = tensorboard_numbers(place)
    tasks, chunks = (
        [step for step, _ in written[name]] for name in ("accuracy/average", "speed/train_images_per_second")
    )
    assert len(tasks) == 3
    assert chunks == list(range(1, tasks[-1] + 1))
    assert f"`{out.resolve()}`" in tensorboard_text(place, "settings")


def test_numbers_can_be_read_during_the_run(tmp_path: Path) -> None:
    writer = TensorBoard().open(SimpleNamespace(folder=tmp_path, config={}))
    rows = [(3, 50.0), (5, 60.0), (7, 70.0)]  # the library itself flushes what comes first
    for number, (step, value) in enumerate(rows, 1):
        writer.write(step, {"accuracy/average": value})
        assert tensorboard_numbers(tmp_path / "tensorboard") == {"accuracy/average": rows[:number]}
    writer.close(finished=False)


def test_two_stopped_runs_of_one_name_resume_in_their_own_folders(tmp_path: Path, small_vit: str) -> None:
    shared, runs, display = tmp_path / "shared", [tmp_path / "a" / "mine", tmp_path / "b" / "mine"], Noting()
    tracker = TensorBoard(str(shared), every=1)
    for seed, out in enumerate(runs):
        with pytest.raises(KeyboardInterrupt):
            start(small_plan(small_vit, seed=seed), out, Noting(8), [tracker])
    for out in reversed(runs):
        resume(out, display, [tracker])
    assert display.warnings == []
    assert sorted(place.name for place in shared.iterdir()) == ["mine", "mine-2"]
    require_whole(shared / "mine", runs[0])
    require_whole(shared / "mine-2", runs[1])


def test_runs_of_one_name_have_a_folder_each_and_find_it_again(tmp_path: Path) -> None:
    shared, runs = tmp_path / "shared", [run_in(tmp_path / above / "mine") for above in "abc"]
    expected = [shared / name for name in ("mine", "mine-2", "mine-3")]
    assert [_own_folder(shared, run) for run in runs] == expected
    assert [_own_folder(shared, run) for run in reversed(runs)] == expected[::-1]
    assert _own_folder(tmp_path / "other", runs[2]) == tmp_path / "other" / "mine"


def test_a_run_that_was_moved_and_renamed_finds_its_folder(tmp_path: Path) -> None:
    shared, out, moved = tmp_path / "shared", tmp_path / "mine", tmp_path / "elsewhere"
    _own_folder(shared, run_in(out))
    out.rename(moved)
    assert _own_folder(shared, run_in(moved)) == shared / "mine"
    run_in(out)  # another run in its former place
    assert _own_folder(shared, run_in(moved)) == shared / "mine"


def test_a_copy_of_a_run_is_another_run(tmp_path: Path) -> None:
    shared, out, copy = tmp_path / "shared", tmp_path / "mine", tmp_path / "copy"
    _own_folder(shared, run_in(out))
    shutil.copytree(out, copy)
    assert _own_folder(shared, run_in(copy)) == shared / "copy"
    assert _own_folder(shared, run_in(out)) == shared / "mine"


def test_a_run_in_the_place_of_a_removed_one_is_another_run(tmp_path: Path) -> None:
    shared, out = tmp_path / "shared", tmp_path / "mine"
    _own_folder(shared, run_in(out))
    shutil.rmtree(out)
    assert _own_folder(shared, run_in(out)) == shared / "mine-2"


def test_a_name_that_was_lost_to_another_run_is_not_written_to(tmp_path: Path) -> None:
    shared, first, second = tmp_path / "shared", run_in(tmp_path / "a" / "mine"), run_in(tmp_path / "b" / "mine")
    _own_folder(shared, first)
    shutil.rmtree(shared)
    assert _own_folder(shared, second) == shared / "mine"
    assert _own_folder(shared, first) == shared / "mine-2"


def test_a_folder_without_an_owner_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "shared" / "mine").mkdir(parents=True)
    assert _own_folder(tmp_path / "shared", run_in(tmp_path / "mine")) == tmp_path / "shared" / "mine-2"
