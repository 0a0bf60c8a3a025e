"""Artifacts of format 1, as the first version wrote them, are read for ever."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

import prol
from golden_files import tiny_vit
from prol.classes import Label

FORMAT_1 = Path(__file__).parent / "format1"


@pytest.mark.parametrize(
    ("name", "classes", "tolerance"),
    [
        ("tiny-ncm", [1, "1", "ünï"], 1e-6),
        ("tiny-prol", ["ant", "bee", "cat", "dog", "eel"], 1e-5),
        ("builtin-ncm", ["ant", "bee", "cat", "dog", "eel"], 1e-4),  # in float32, on a network of twelve blocks
    ],
)
def test_an_artifact_of_the_first_version_gives_the_scores_it_gave_then(
    name: str, classes: list[Label], tolerance: float
) -> None:
    learner = prol.load(FORMAT_1 / name, tiny_vit() if name.startswith("tiny") else None, device="cpu")
    asked = load_file(FORMAT_1 / f"{name}-scores.safetensors")
    assert learner.classes == classes
    assert (learner.predict(asked["images"].numpy()) - asked["scores"]).abs().max() <= tolerance
    if name == "builtin-ncm":
        assert learner.backbone.name == "vit_tiny_patch8_64.tiny_imagenet"


def test_saving_one_again_adds_what_it_lacked(tmp_path: Path) -> None:
    shutil.copytree(FORMAT_1 / "tiny-ncm", tmp_path / "saved")
    before = json.loads((tmp_path / "saved" / "meta.json").read_text(encoding="utf-8"))
    prol.load(tmp_path / "saved", tiny_vit()).save(tmp_path / "saved")
    after = json.loads((tmp_path / "saved" / "meta.json").read_text(encoding="utf-8"))
    assert after["state"]["method"].pop("calibration")["count"] == 0
    assert {name: after[name] for name in before} == before | {"prol": prol.__version__}
    assert after["seen"]["per_class"] == [1, 1, 1]
    assert (tmp_path / "saved" / "README.md").is_file()
