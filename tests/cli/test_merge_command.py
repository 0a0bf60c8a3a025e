"""`prol merge`: saved learners put together in a new folder that says what it is made of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import prol
from prol.testing.stream import make_images

IMAGES = make_images(12, seed=1)
LABELS = ["ant", "bee", 7, "bee", "7", "bee", 7, "ant", "cow", "cow", "ant", "7"]


def read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def operations_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "operations.jsonl").read_text(encoding="utf-8").splitlines()]


def teach(method: str, micro_vit: str, *places: slice, **options: Any) -> Any:
    learner = prol.create(method, micro_vit, device="cpu", **options)
    for place in places:
        learner.learn(IMAGES[place], LABELS[place])
    return learner


@pytest.fixture
def sites(tmp_path: Path, micro_vit: str) -> list[Path]:
    folders = [tmp_path / "here", tmp_path / "there"]
    for folder, place in zip(folders, (slice(0, 8), slice(8, 12)), strict=True):
        teach("slda", micro_vit, place).save(folder)
    return folders


def test_merged_folders_are_what_one_learner_would_have_saved(
    tmp_path: Path, micro_vit: str, sites: list[Path], command: Any
) -> None:
    out = tmp_path / "all"
    code, said, err = command("merge", *map(str, sites), "--out", str(out), "--device", "cpu", "--note", "spring")
    assert (code, err) == (0, "")
    assert "slda with 5 classes of 12 images, from 2 learners" in said
    merged, whole = prol.load(out, device="cpu"), teach("slda", micro_vit, slice(0, 8), slice(8, 12))
    assert merged.classes == whole.classes == ["ant", "bee", 7, "7", "cow"]
    for name, tensor in merged.state()[0].items():
        torch.testing.assert_close(tensor, whole.state()[0][name], rtol=1e-9, atol=1e-9)
    assert torch.equal(merged.predict(IMAGES).argmax(1), whole.predict(IMAGES).argmax(1))
    meta = read(out / "meta.json")
    assert meta["seen"] == {"images": 12, "classes": 5, "per_class": [3, 3, 2, 2, 2]}
    assert [part["model_sha256"] for part in meta["merged"]["learners"]] == [
        read(site / "meta.json")["model_sha256"] for site in sites
    ]
    assert [part["images"] for part in meta["merged"]["learners"]] == [8, 4]
    assert (meta["merged"]["base"], meta["run"]) == (None, None)
    [line] = operations_of(out)
    assert (line["what"], line["learners"], line["note"], line["classes"]) == ("joined", 2, "spring", 5)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "merged from 2 learners that learnt separately" in card
    assert "class joined" not in card
    assert str(tmp_path) not in (out / "meta.json").read_text().replace(meta["backbone"]["name"], "")


def test_a_merged_folder_remembers_it_when_its_classes_change(tmp_path: Path, sites: list[Path], command: Any) -> None:
    command("classes", "rename", str(sites[1]), "cow", "cattle", "--device", "cpu")
    out = tmp_path / "all"
    assert command("merge", *map(str, sites), "--out", str(out), "--device", "cpu").code == 0
    assert command("classes", "remove", str(out), "bee", "--yes", "--device", "cpu").code == 0
    assert len(read(out / "meta.json")["merged"]["learners"]) == 2
    assert [line["what"] for line in operations_of(out)] == ["renamed", "joined", "removed"]
    assert "1 class renamed, 1 class removed" in (out / "README.md").read_text(encoding="utf-8")


def test_sites_that_went_on_from_one_learner_name_it_as_base(tmp_path: Path, micro_vit: str, command: Any) -> None:
    base = teach("randumb", micro_vit, slice(0, 4), features=20)  # its gamma is that of the first chunk
    base.save(tmp_path / "base")
    for name, place in (("one", slice(4, 8)), ("two", slice(8, 12))):
        site = prol.load(tmp_path / "base", device="cpu")
        site.learn(IMAGES[place], LABELS[place])
        site.save(tmp_path / name)
    folders = [str(tmp_path / name) for name in ("one", "two")]
    out = tmp_path / "all"
    assert command("merge", *folders, "--base", str(tmp_path / "base"), "--out", str(out), "--device", "cpu").code == 0
    base.learn(IMAGES[4:8], LABELS[4:8])
    base.learn(IMAGES[8:], LABELS[8:])
    merged = prol.load(out, device="cpu")
    assert merged.classes == base.classes
    torch.testing.assert_close(merged.predict(IMAGES), base.predict(IMAGES), rtol=1e-4, atol=1e-4)
    assert read(out / "meta.json")["merged"]["base"]["images"] == 4


def test_what_cannot_be_merged_leaves_nothing_behind(
    tmp_path: Path, micro_vit: str, sites: list[Path], command: Any
) -> None:
    out = str(tmp_path / "all")
    teach("ncm", micro_vit, slice(0, 4)).save(tmp_path / "ncm")
    teach("head_only", micro_vit, slice(0, 4)).save(tmp_path / "trained")
    here, trained = str(sites[0]), str(tmp_path / "trained")
    shutil.copytree(here, tmp_path / "run/model")
    for folders, said in (
        ([here, str(tmp_path / "ncm")], "differ in method ('slda' and 'ncm')"),
        ([trained, here], "head_only cannot be merged"),
        ([here, here], "two or more different folders"),
        ([here], "two or more different folders"),
        ([here, str(shutil.copytree(here, tmp_path / "copy"))], "hold the same learner, which would be counted twice"),
        ([here, str(tmp_path / "run")], f"it has no meta.json; that of the run is in {tmp_path / 'run/model'}"),
        ([here, str(tmp_path / "nowhere")], "no saved learner at"),
    ):
        code, _, err = command("merge", *folders, "--out", out, "--device", "cpu")
        assert code == 2
        assert said in err
        assert not Path(out).exists()
    code, _, err = command("merge", *map(str, sites), "--out", str(tmp_path / "ncm"), "--device", "cpu")
    assert code == 2
    assert "exists already: choose another --out" in err
