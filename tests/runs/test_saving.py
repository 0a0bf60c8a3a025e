from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import prol
from golden_files import tiny_vit
from prol.backbones import ViT
from prol.learner import Learner
from prol.testing.stream import STREAM, difference, make_images, same_bits, teach
from testing.colour_means import ColourMeans, colour_means

METHODS = [
    ("ncm", {}),
    ("head_only", {}),
    ("prol", {"blocks": 2}),
    ("prol", {"blocks": 2, "preset": "released"}),
    ("prol", {"blocks": 2, "preset": "literal"}),
]


def taught(backbone: ViT, method: str = "ncm", **options: Any) -> Learner:
    return teach(prol.create(method, backbone, seed=4, **options), STREAM[:3])


@pytest.mark.parametrize(("method", "options"), METHODS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_loaded_learner_goes_on_bit_for_bit(
    tmp_path: Path, method: str, options: dict[str, Any], dtype: torch.dtype
) -> None:
    backbone = tiny_vit(dtype)
    learner = taught(backbone, method, **options)
    learner.save(tmp_path / "saved")
    twin = prol.load(tmp_path / "saved", backbone)
    assert type(twin) is type(learner)
    assert (twin.options, twin.seed, twin.classes) == (learner.options, learner.seed, learner.classes)
    teach(learner, STREAM[3:]), teach(twin, STREAM[3:])
    assert difference(learner.state(), twin.state()) == ""
    assert same_bits(learner.predict(make_images(3, 0)), twin.predict(make_images(3, 0)))


def test_a_learner_on_the_built_in_backbone_needs_nothing_but_its_folder(tmp_path: Path) -> None:
    learner = teach(prol.create("ncm", "tiny", device="cpu"), STREAM[:1])
    learner.save(tmp_path / "saved")
    twin = prol.load(tmp_path / "saved", device="cpu")
    assert twin.backbone.precision == learner.backbone.precision
    assert difference(learner.state(), twin.state()) == ""


def test_an_artifact_is_three_files_with_everything_said(tmp_path: Path, tiny: ViT) -> None:
    taught(tiny).save(tmp_path / "saved")
    names = sorted(path.name for path in (tmp_path / "saved").iterdir())
    assert names == ["README.md", "meta.json", "model.safetensors"]
    meta = json.loads((tmp_path / "saved" / "meta.json").read_text())
    assert (meta["format"], meta["prol"], meta["method"], meta["seed"]) == (1, prol.__version__, "ncm", 4)
    assert meta["backbone"] == {"name": "tiny", "sha256": "tiny"}
    assert (meta["precision"], meta["preprocessing"]["size"]) == ("float64", 16)
    assert meta["classes"] == ["ant", "bee", "cat", "dog", "eel"]
    assert meta["options"]["distance"] == "cosine"
    assert meta["seen"] == {"images": 21, "classes": 5, "per_class": [6, 4, 4, 4, 3]}
    assert (meta["versions"]["torch"], meta["run"]) == (torch.__version__, None)
    assert meta["footprint"]["samples_stored"]["count"] == 0


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ncm", {}),
        ("slda", {}),
        ("foal", {}),
        ("prol_plus", {}),
        ("randumb", {"features": 50}),
        ("ranpac", {"features": 50}),
        ("ranpac", {"features": 50, "memory": 2}),
        ("ranpac", {"features": 50, "memory": "all"}),
    ],
    ids=str,
)
def test_methods_that_keep_count_of_images_say_how_many_of_each_class(
    tiny: ViT, method: str, options: dict[str, Any]
) -> None:
    learner = prol.create(method, tiny, **options)
    assert learner.class_counts() is not None
    teach(learner)
    counts = learner.class_counts()
    assert counts is not None
    assert counts.tolist() == [6, 4, 4, 8, 6]


@pytest.mark.parametrize(
    ("method", "options"), [("prol", {"blocks": 2}), ("ranpac", {"memory": "none", "features": 50})], ids=str
)
def test_methods_that_do_not_keep_count_say_so(tmp_path: Path, tiny: ViT, method: str, options: dict[str, Any]) -> None:
    taught(tiny, method, **options).save(tmp_path / "saved")
    seen = json.loads((tmp_path / "saved" / "meta.json").read_text())["seen"]
    assert seen == {"images": None, "classes": 5, "per_class": None}


def test_text_and_number_labels_come_back_as_what_they_were(tmp_path: Path, tiny: ViT) -> None:
    learner = prol.create("ncm", tiny)
    learner.learn(make_images(3, 1), [1, "1", "ünï"])
    learner.save(tmp_path / "saved")
    assert prol.load(tmp_path / "saved", tiny).classes == [1, "1", "ünï"]


def test_saving_again_replaces_the_artifact(tmp_path: Path, tiny: ViT) -> None:
    taught(tiny).save(tmp_path / "saved")
    learner = teach(taught(tiny), STREAM[3:])
    learner.save(tmp_path / "saved")
    assert difference(prol.load(tmp_path / "saved", tiny).state(), learner.state()) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


def test_a_save_that_fails_leaves_the_artifact_before_it(tmp_path: Path, tiny: ViT) -> None:
    class Unwritable(ColourMeans):
        def state(self) -> Any:
            tensors, meta = super().state()
            return tensors, meta | {"not JSON": {1, 2}}

    saved = teach(colour_means(tiny), STREAM[:1])
    saved.save(tmp_path / "saved")
    with pytest.raises(TypeError):
        Unwritable(tiny, saved.options).save(tmp_path / "saved")
    twin = prol.load(tmp_path / "saved", tiny, method=ColourMeans)
    assert difference(twin.state(), saved.state()) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["whole", "into"])
def test_a_process_killed_at_any_step_of_saving_leaves_the_old_or_the_new_artifact(tmp_path: Path, how: str) -> None:
    script = Path(__file__).parent / "kill_while_saving.py"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, tmp_path, how],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kills"] > 8
    assert report["broken"] == []
    assert report["old"] > 0
    assert report["new"] > 0


def test_a_folder_that_holds_something_else_is_not_overwritten(tmp_path: Path, tiny: ViT) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="holds other things than a saved learner"):
        taught(tiny).save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    with pytest.raises(ValueError, match="it is a file"):
        taught(tiny).save(tmp_path / "thesis.txt")


@pytest.mark.parametrize("name", ["README.md", "model.safetensors"])
def test_a_file_of_an_artifact_alone_is_somebodys_own(tmp_path: Path, tiny: ViT, name: str) -> None:
    (tmp_path / name).write_text("years of work")
    with pytest.raises(ValueError, match="holds other things than a saved learner"):
        taught(tiny).save(tmp_path)
    assert (tmp_path / name).read_text() == "years of work"


def test_an_empty_folder_may_be_used(tmp_path: Path, tiny: ViT) -> None:
    (tmp_path / "saved").mkdir()
    taught(tiny).save(str(tmp_path / "saved"))
    assert len(prol.load(str(tmp_path / "saved"), tiny).classes) == 5


def test_a_missing_artifact_or_file_is_named(tmp_path: Path, tiny: ViT) -> None:
    with pytest.raises(FileNotFoundError, match="no saved learner at"):
        prol.load(tmp_path / "nowhere", tiny)
    taught(tiny).save(tmp_path / "saved")
    (tmp_path / "saved" / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match=r"it has no model\.safetensors"):
        prol.load(tmp_path / "saved", tiny)


def test_a_method_without_a_name_in_the_registry_is_loaded_by_its_class(tmp_path: Path, tiny: ViT) -> None:
    teach(colour_means(tiny), STREAM[:1]).save(tmp_path / "saved")
    with pytest.raises(ValueError, match="unknown method 'colour_means'"):
        prol.load(tmp_path / "saved", tiny)
    assert prol.load(tmp_path / "saved", tiny, method=ColourMeans).classes == ["ant", "bee", "cat"]


def test_an_artifact_may_be_moved(tmp_path: Path, tiny: ViT) -> None:
    learner = taught(tiny, "head_only")
    learner.save(tmp_path / "saved")
    shutil.move(tmp_path / "saved", tmp_path / "moved")
    assert difference(prol.load(tmp_path / "moved", tiny).state(), learner.state()) == ""
