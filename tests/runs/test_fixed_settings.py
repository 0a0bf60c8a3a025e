"""A run goes on only with the settings and the images it began with."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prol.data import ArraySplit, Dataset, Subset
from prol.data.folder import FileSplit
from prol.runs import Plan, resume, start
from prol.runs.export import export
from prol.runs.setup import images_sha256
from runs.small_runs import contents, small_plan
from runs.test_resume import InterruptAfter, Interruption, interrupted


def change(folder: Path, name: str, value: object) -> None:
    """Sets one setting of `config.json`, given by its dotted name."""
    config = json.loads((folder / "config.json").read_text())
    *sections, last = name.split(".")
    place = config
    for section in sections:
        place = place[section]
    place[last] = value
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 1), ("options.lr", 0.5), ("protocol.chunk", 4), ("checkpoint_every", 1), ("measures.prequential", True)],
)
def test_a_run_whose_config_was_changed_after_its_start_is_refused(
    tmp_path: Path, micro_vit: str, name: str, value: object
) -> None:
    folder = interrupted(small_plan(micro_vit, "head_only"), tmp_path / "run", 9)
    original, log = (folder / "config.json").read_text(), (folder / "events.jsonl").read_bytes()
    change(folder, name, value)
    with pytest.raises(ValueError, match=rf"the run began with {name} .*, now it is {value}: restore it"):
        resume(folder)
    assert (folder / "events.jsonl").read_bytes() == log
    (folder / "config.json").write_text(original)
    assert resume(folder).status() == "finished"


def test_a_run_whose_config_was_changed_is_not_exported(tmp_path: Path, micro_vit: str) -> None:
    folder = interrupted(small_plan(micro_vit, "head_only"), tmp_path / "run", 9)
    change(folder, "seed", 1)
    with pytest.raises(ValueError, match="the run began with seed 0, now it is 1"):
        export(folder, tmp_path / "exported", pytest.fail)
    assert not (tmp_path / "exported").exists()


def test_checkpoints_of_another_run_are_refused(tmp_path: Path, micro_vit: str) -> None:
    mine = interrupted(small_plan(micro_vit, "ncm"), tmp_path / "mine", 9)
    other = interrupted(small_plan(micro_vit, "slda"), tmp_path / "other", 9)
    shutil.rmtree(mine / "checkpoint")
    shutil.copytree(other / "checkpoint", mine / "checkpoint")
    with pytest.raises(ValueError, match="the run began with method 'slda', now it is 'ncm'"):
        resume(mine)


def test_a_run_begun_before_checkpoints_had_a_share_of_the_time_goes_on(tmp_path: Path, micro_vit: str) -> None:
    folder = interrupted(small_plan(micro_vit, checkpoint_share=0.1), tmp_path / "run", 9)
    config = json.loads((folder / "config.json").read_text())
    del config["checkpoint_share"]
    (folder / "config.json").write_text(json.dumps(config))
    assert resume(folder).status() == "finished"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes of four images in files, one of them for testing."""
    draw = np.random.default_rng(0)
    for name in ("cat", "dog"):
        for number in range(4):
            path = tmp_path / "pictures" / name / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(draw.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    return tmp_path / "pictures"


def test_a_run_whose_images_were_exchanged_is_refused(tmp_path: Path, micro_vit: str, pictures: Path) -> None:
    plan = Plan(
        "ncm", "folder", data=str(pictures), backbone=micro_vit, tasks=1, chunk=2, checkpoint_every=1, threads=1
    )
    plan = replace(plan, device="cpu", checkpoint_share=1.0)
    whole = start(plan, tmp_path / "whole")
    with pytest.raises(Interruption):
        start(plan, tmp_path / "run", InterruptAfter(4))
    exchanged = pictures / "cat/0.png"
    original = exchanged.read_bytes()
    Image.new("RGB", (16, 16)).save(exchanged)
    with pytest.raises(ValueError, match=r"the run began with images_sha256 .*: restore it, or start a new run"):
        resume(tmp_path / "run")
    exchanged.write_bytes(original)
    assert contents(resume(tmp_path / "run").path) == contents(whole.path)


def test_the_hash_of_images_is_that_of_the_files_in_use(pictures: Path) -> None:
    half = FileSplit(tuple(sorted(pictures.rglob("*.png"))), np.repeat(np.arange(2), 4))
    whole = Dataset("made", ("cat", "dog"), half, half)
    first = whole.limited(1)
    hashes = images_sha256(whole), images_sha256(first)
    assert hashes[0] != hashes[1]
    (pictures / "cat/1.png").write_bytes(b"longer or shorter")
    assert images_sha256(whole) != hashes[0]
    assert images_sha256(first) == hashes[1]
    (pictures / "cat/0.png").unlink()
    assert images_sha256(first) != hashes[1]


def test_the_hash_of_images_in_memory_is_that_of_their_pixels() -> None:
    images = np.zeros((4, 2, 2, 3), np.uint8)
    labels = np.arange(4, dtype=np.int64) % 2

    def made() -> Dataset:
        half = ArraySplit(images, labels)
        return Dataset("made", ("a", "b"), half, Subset(half, np.array([0, 1])))

    before = images_sha256(made())
    assert images_sha256(made()) == before
    images[3, 0, 0, 0] = 1
    assert images_sha256(made()) != before
