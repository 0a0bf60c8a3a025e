"""Runs that write side by side into one folder of event files, also those that have the same name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from integrations.read_back import tensorboard_numbers, tensorboard_text
from integrations.test_trackers import Noting
from prol.integrations.trackers import TensorBoard
from prol.runs import resume, start
from runs.small_runs import small_plan

AVERAGE = "accuracy/average"


def track(vit: str, out: Path, shared: Path, seed: int = 0, events: int = 0) -> None:
    """A whole run, or one that is stopped after some events."""
    display = Noting(events)
    plan = small_plan(vit, seed=seed)
    if events:
        with pytest.raises(KeyboardInterrupt):
            start(plan, out, display, [TensorBoard(str(shared), every=1)])
    else:
        start(plan, out, display, [TensorBoard(str(shared), every=1)])
    assert display.warnings == []


def go_on(out: Path, shared: Path) -> None:
    display = Noting()
    resume(out, display, [TensorBoard(str(shared), every=1)])
    assert display.warnings == []


def require_whole(place: Path, out: Path) -> None:
    """Event files of this run alone, with each task and each chunk once."""
    written = tensorboard_numbers(place)
    # Files of the same second are read in any order.
    tasks, chunks = (sorted(step for step, _ in written[name]) for name in (AVERAGE, "speed/train_images_per_second"))
    assert len(tasks) == 3
    assert chunks == list(range(1, tasks[-1] + 1))
    assert f"`{out.resolve()}`" in tensorboard_text(place, "settings")


def folders(shared: Path) -> list[str]:
    return sorted(place.name for place in shared.iterdir())


def test_runs_of_one_name_have_a_folder_each(tmp_path: Path, small_vit: str) -> None:
    shared = tmp_path / "shared"
    for seed, above in enumerate(("a", "b", "c")):
        track(small_vit, tmp_path / above / "mine", shared, seed)
    assert folders(shared) == ["mine", "mine-2", "mine-3"]
    for name, above in zip(folders(shared), ("a", "b", "c"), strict=True):
        require_whole(shared / name, tmp_path / above / "mine")


def test_a_stopped_run_goes_on_in_its_own_of_them(tmp_path: Path, small_vit: str) -> None:
    shared, first, second = tmp_path / "shared", tmp_path / "a" / "mine", tmp_path / "b" / "mine"
    track(small_vit, first, shared, 0, events=8)
    track(small_vit, second, shared, 1, events=8)
    go_on(second, shared)
    go_on(first, shared)
    assert folders(shared) == ["mine", "mine-2"]
    require_whole(shared / "mine", first)
    require_whole(shared / "mine-2", second)


def test_a_run_that_was_moved_and_renamed_goes_on_in_its_own(tmp_path: Path, small_vit: str) -> None:
    shared, out, moved = tmp_path / "shared", tmp_path / "mine", tmp_path / "elsewhere"
    track(small_vit, out, shared, events=8)
    out.rename(moved)
    go_on(moved, shared)
    assert folders(shared) == ["mine"]
    require_whole(shared / "mine", out)


def test_a_copy_of_a_run_is_another_run(tmp_path: Path, small_vit: str) -> None:
    shared, out, copy = tmp_path / "shared", tmp_path / "mine", tmp_path / "copy"
    track(small_vit, out, shared, events=8)
    shutil.copytree(out, copy)
    go_on(out, shared)
    go_on(copy, shared)
    assert folders(shared) == ["copy", "mine"]
    require_whole(shared / "mine", out)
    assert tensorboard_numbers(shared / "copy")[AVERAGE]


def test_a_run_in_the_place_of_one_that_was_removed_is_another_one(tmp_path: Path, small_vit: str) -> None:
    shared, out = tmp_path / "shared", tmp_path / "mine"
    track(small_vit, out, shared)
    shutil.rmtree(out)
    track(small_vit, out, shared)
    assert folders(shared) == ["mine", "mine-2"]
    require_whole(shared / "mine-2", out)


def test_a_name_that_was_lost_to_another_run_is_not_written_to(tmp_path: Path, small_vit: str) -> None:
    shared, first, second = tmp_path / "shared", tmp_path / "a" / "mine", tmp_path / "b" / "mine"
    track(small_vit, first, shared, events=8)
    shutil.rmtree(shared)
    track(small_vit, second, shared, 1)
    go_on(first, shared)
    assert folders(shared) == ["mine", "mine-2"]
    require_whole(shared / "mine", second)
    assert AVERAGE in tensorboard_numbers(shared / "mine-2")
