from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prol.evaluation import Event
from prol.runs import RunFolder, resume, start
from prol.runs.display import Silent
from runs.small_runs import contents, environment, small_plan

METHODS = ("ncm", "head_only", "prol")


class Interruption(Exception):
    pass


class InterruptAfter(Silent):
    """Stops a run after some events."""

    def __init__(self, events: int) -> None:
        self.left = events
        self.warnings: list[str] = []

    def __call__(self, event: Event, seconds: float) -> None:
        del event, seconds
        self.left -= 1
        if self.left == 0:
            raise Interruption

    def warn(self, line: str) -> None:
        self.warnings.append(line)


def interrupted(plan: Any, folder: Path, events: int) -> Path:
    with pytest.raises(Interruption):
        start(plan, folder, InterruptAfter(events))
    return folder


@pytest.fixture(scope="session")
def whole(finished: Callable[[str], Path]) -> dict[str, Path]:
    """A run of each method that nothing interrupted."""
    return {method: finished(method) for method in METHODS}


@pytest.fixture(scope="module")
def interrupted_once(micro_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return interrupted(small_plan(micro_vit), tmp_path_factory.mktemp("interrupted") / "run", 9)


@pytest.fixture
def stopped(interrupted_once: Path, tmp_path: Path) -> Path:
    """A copy of an interrupted run."""
    return Path(shutil.copytree(interrupted_once, tmp_path / "run"))


@pytest.mark.parametrize("method", METHODS)
def test_a_run_interrupted_at_any_event_ends_as_if_it_had_not_been(
    tmp_path: Path, micro_vit: str, whole: dict[str, Path], method: str
) -> None:
    interrupt_and_compare(micro_vit, whole[method], method, tmp_path, step=9 if method == "ncm" else 14)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_interrupted_at_every_event_ends_as_if_it_had_not_been(
    tmp_path: Path, micro_vit: str, whole: dict[str, Path], method: str
) -> None:
    interrupt_and_compare(micro_vit, whole[method], method, tmp_path, step=1)


def interrupt_and_compare(micro_vit: str, whole: Path, method: str, tmp_path: Path, step: int) -> None:
    events = len((whole / "events.jsonl").read_text().splitlines())
    for after in range(2, events + 1, step):
        folder = interrupted(small_plan(micro_vit, method), tmp_path / str(after), after)
        assert RunFolder(folder).status() == "unfinished"
        resume(folder)
        assert contents(folder) == contents(whole)


def test_a_run_interrupted_many_times_ends_as_if_it_had_not_been(
    tmp_path: Path, micro_vit: str, whole: dict[str, Path]
) -> None:
    folder = interrupted(small_plan(micro_vit, "head_only"), tmp_path / "run", 6)
    for events in (2, 6):
        with pytest.raises(Interruption):
            resume(folder, InterruptAfter(events))
    resume(folder)
    assert contents(folder) == contents(whole["head_only"])


def test_time_spent_before_an_interruption_is_kept(tmp_path: Path, micro_vit: str) -> None:
    folder = interrupted(small_plan(micro_vit), tmp_path / "run", 12)
    timing = json.loads(resume(folder).timing.read_text())
    assert [task["train_images"] for task in timing["tasks"]] == [16, 12, 12]
    assert [task["test_images"] for task in timing["tasks"]] == [16, 28, 40]


def test_a_run_without_checkpoints_begins_anew_and_so_do_its_times(tmp_path: Path, micro_vit: str) -> None:
    plan = small_plan(micro_vit, "head_only", checkpoint_every=None)
    folder = interrupted(plan, tmp_path / "run", 12)
    assert not list(folder.glob("checkpoint/*"))
    timing = json.loads(resume(folder).timing.read_text())
    assert [task["train_images"] for task in timing["tasks"]] == [16, 12, 12]
    assert contents(folder) == contents(start(plan, tmp_path / "whole").path)


def test_a_damaged_checkpoint_is_reported_and_the_one_before_it_used(
    tmp_path: Path, micro_vit: str, whole: dict[str, Path]
) -> None:
    folder, display = interrupted(small_plan(micro_vit, "head_only"), tmp_path / "run", 14), InterruptAfter(0)
    newest = max((folder / "checkpoint").iterdir())
    newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    resume(folder, display)
    assert len(display.warnings) == 1
    assert newest.name in display.warnings[0]
    assert contents(folder) == contents(whole["head_only"])


def test_with_all_checkpoints_damaged_the_run_begins_again(
    tmp_path: Path, micro_vit: str, whole: dict[str, Path]
) -> None:
    folder, display = interrupted(small_plan(micro_vit, "head_only"), tmp_path / "run", 14), InterruptAfter(0)
    for checkpoint in (folder / "checkpoint").iterdir():
        checkpoint.write_bytes(b"")
    resume(folder, display)
    assert len(display.warnings) == 3
    assert "starting from the beginning" in display.warnings[-1]
    assert contents(folder) == contents(whole["head_only"])


def test_a_finished_run_is_left_as_it_is(whole: dict[str, Path]) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole["ncm"].rglob("*")}
    assert resume(whole["ncm"]).status() == "finished"
    assert {path: path.stat().st_mtime_ns for path in whole["ncm"].rglob("*")} == before


def test_what_is_no_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist: give the folder of a run"):
        resume(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"it has no config\.json"):
        resume(tmp_path)


def change_config(folder: Path, section: str, name: str, value: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    config[section][name] = value
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("section", "name"), [("backbone", "sha256"), ("dataset", "labels_sha256"), ("dataset", "train_images")]
)
def test_a_run_does_not_go_on_with_other_data_or_weights(stopped: Path, section: str, name: str) -> None:
    change_config(stopped, section, name, 0 if name == "train_images" else "0")
    with pytest.raises(ValueError, match=f"the run began with {section}.{name} '?0'?, now it is"):
        resume(stopped)


def test_a_run_goes_on_with_other_versions_but_says_so(stopped: Path) -> None:
    display = InterruptAfter(0)
    change_config(stopped, "versions", "torch", "1.0")
    assert resume(stopped, display).status() == "finished"
    assert display.warnings[0].startswith("the run began with torch 1.0, now it is")


def test_a_log_shorter_than_at_the_checkpoint_is_refused(stopped: Path) -> None:
    (stopped / "events.jsonl").write_bytes(b"")
    with pytest.raises(ValueError, match="start the run again"):
        resume(stopped)


def test_two_processes_do_not_work_in_one_folder(stopped: Path) -> None:
    with RunFolder(stopped).locked(), pytest.raises(ValueError, match="another process is running"):
        resume(stopped)
    assert resume(stopped).status() == "finished"


@pytest.mark.slow
def test_a_process_killed_at_any_file_operation_ends_as_if_it_had_not_been(tmp_path: Path, micro_vit: str) -> None:
    script = Path(__file__).parent / "kill_while_running.py"
    done = subprocess.run(
        [sys.executable, script, tmp_path, micro_vit],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] >= 18
    assert report["different"] == []


def test_weights_that_moved_are_found_by_the_name_given(tmp_path: Path, micro_vit: str, stopped: Path) -> None:
    config = json.loads((stopped / "config.json").read_text())
    gone = f"test_vit@{tmp_path / 'gone.safetensors'}"
    config["backbone"]["name"] = config["told"]["weights"] = gone
    (stopped / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileNotFoundError, match=r"gone\.safetensors, which is not here.*--backbone"):
        resume(stopped)
    assert resume(stopped, backbone=micro_vit).status() == "finished"
    with pytest.raises(ValueError, match=r"began with backbone\.name .* now it is .test_vit@random"):
        resume(interrupted(small_plan(micro_vit), tmp_path / "other", 9), backbone="test_vit@random")


def test_a_run_of_the_first_version_resumes_on_the_network_it_began_with(tmp_path: Path) -> None:
    """It stored the network of that time as "builtin", which is another one now."""
    few = {"limit_per_class": 1, "chunk": 4}
    folder = interrupted(small_plan("vit_tiny_patch8_64.tiny_imagenet", **few), tmp_path / "run", 4)
    config = json.loads((folder / "config.json").read_text())
    config["backbone"]["name"] = config["told"]["weights"] = "builtin"
    (folder / "config.json").write_text(json.dumps(config))
    assert resume(folder).status() == "finished"
    meta = json.loads((folder / "model" / "meta.json").read_text())
    assert meta["backbone"] == {"name": "vit_tiny_patch8_64.tiny_imagenet", "sha256": config["backbone"]["sha256"]}
    config["backbone"]["sha256"] = "5" * 64
    (folder / "result.json").unlink()
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"built-in network 'builtin' with weights {'5' * 64}.*--backbone FILE"):
        resume(folder)
