"""`prol export`: from the folder of a run, finished or stopped, to a model that people can keep."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prol
from prol.evaluation import ChunkLearnt, Event
from prol.runs import resume, start
from prol.runs.display import Silent
from prol.runs.folder import RunFolder
from prol.testing.stream import difference
from runs.small_runs import small_plan


@pytest.fixture
def run(finished: Callable[[str], Path]) -> RunFolder:
    return RunFolder(finished("ncm"))


def meta_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    return content


class StopsAfter(Silent):
    """Whoever watches interrupts the run after so many chunks."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds
        if isinstance(event, ChunkLearnt) and event.chunk == self.chunks:
            raise KeyboardInterrupt


@pytest.fixture
def export(command):
    return lambda run, out: command("export", str(run), str(out), "--device", "cpu")


@pytest.fixture
def kept(run: RunFolder, export, tmp_path: Path) -> Path:
    """The saved learner of the finished run."""
    done = export(run.path, tmp_path / "kept")
    assert (done.code, done.err) == (0, "")
    assert f"prol predict {tmp_path / 'kept'}" in done.out
    return tmp_path / "kept"


def test_a_finished_run_becomes_a_folder_to_keep(run: RunFolder, kept: Path) -> None:
    assert sorted(path.name for path in kept.iterdir()) == ["README.md", "meta.json", "model.safetensors"]
    assert (kept / "model.safetensors").read_bytes() == (run.model / "model.safetensors").read_bytes()
    assert difference(prol.load(kept).state(), prol.load(run.model).state()) == ""


def test_it_says_what_was_seen_and_measured_but_not_where_data_lay(run: RunFolder, kept: Path) -> None:
    meta, config, result = meta_of(kept), run.read(run.config), run.read(run.result)
    assert meta["seen"] == {"images": 40, "classes": 10, "per_class": [4] * 10}
    assert (meta["versions"], meta["precision"]) == (config["versions"], config["precision"])
    assert (meta["run"]["dataset"]["name"], meta["run"]["protocol"]) == ("digits", config["protocol"])
    assert (meta["run"]["finished"], meta["run"]["tasks_ended"]) == (True, 3)
    assert meta["run"]["result"]["faa"] == result["metrics"]["faa"]
    assert "data" not in meta["run"]["dataset"]
    card = (kept / "README.md").read_text(encoding="utf-8")
    assert f"| {result['metrics']['faa']:.2f} |" in card
    assert "40 images, of 10 classes, from the data set `digits` (at most 4 images per class)" in card
    assert "3 tasks, chunks of 5, seed 0" in card


def test_what_is_kept_holds_no_weights_of_the_backbone(export, finished, micro_vit: str, tmp_path: Path) -> None:
    assert export(finished("prol"), tmp_path / "kept").code == 0
    weights = Path(micro_vit.partition("@")[2]).stat().st_size
    assert (tmp_path / "kept" / "model.safetensors").stat().st_size < weights / 10
    # This method counts no images, but the run did.
    assert meta_of(tmp_path / "kept")["seen"] == {"images": 40, "classes": 10, "per_class": None}


def test_a_stopped_run_gives_what_it_had_learnt_and_can_still_go_on(export, micro_vit: str, tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        start(small_plan(micro_vit), run.path, StopsAfter(8))
    done = export(run.path, tmp_path / "kept")
    assert (done.code, done.err) == (0, "")
    meta = meta_of(tmp_path / "kept")
    assert (meta["run"]["finished"], meta["run"]["result"]) == (False, None)
    # Chunk 8 is in the log, but the last checkpoint is of chunk 7, the end of a task.
    assert meta["seen"]["images"] == sum(meta["seen"]["per_class"]) == 28
    card = (tmp_path / "kept" / "README.md").read_text(encoding="utf-8")
    assert re.search(r"The run is unfinished: 2 of the tasks had ended\.", card)
    assert "Nothing yet." in card
    assert len(prol.load(tmp_path / "kept").classes) == meta["seen"]["classes"]
    assert resume(run.path).status() == "finished"


def test_weights_that_were_moved_are_named(command, run: RunFolder, micro_vit: str, tmp_path: Path) -> None:
    run = shutil.copytree(run.path, tmp_path / "run")
    text = (run / "model" / "meta.json").read_text()
    (run / "model" / "meta.json").write_text(text.replace("small.safetensors", "gone.safetensors"))
    arguments = ("export", str(run), str(tmp_path / "kept"), "--device", "cpu")
    refused = command(*arguments)
    assert refused.code == 2
    assert "--backbone ARCH@FILE.safetensors" in refused.err
    assert command(*arguments, "--backbone", micro_vit).code == 0


def test_a_run_in_which_another_process_is_at_work_is_left_alone(command, run: RunFolder, tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(run.path, tmp_path / "run"))
    run.result.unlink()
    with run.locked():
        outcome = command("export", str(run.path), str(tmp_path / "kept"), "--device", "cpu")
    assert outcome.code == 2
    assert "another process is running" in outcome.err


def test_what_cannot_be_exported_is_told_in_one_line(command, run: RunFolder, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "config.json").write_text(run.config.read_text())
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in (run.config, run.result):
        (bare / file.name).write_text(file.read_text())
    for folder, out, words in (
        (tmp_path / "nowhere", tmp_path / "kept", "does not exist"),
        (tmp_path / "mine", tmp_path / "kept", "is not the folder of a run"),
        (begun, tmp_path / "kept", "has no checkpoint yet"),
        (bare, tmp_path / "kept", "has no model/"),
        (run.path, tmp_path / "mine", "holds other things than a saved learner"),
    ):
        outcome = command("export", str(folder), str(out), "--device", "cpu")
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert words in outcome.err
    assert not (tmp_path / "kept").exists()
