"""The model card: what hubs read, what people read, and that its own instructions work."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from PIL import Image

import prol
from prol.backbones import PAPER, ViT
from prol.backbones.terms import weights_terms
from prol.runs.card import model_card
from prol.testing.stream import STREAM, make_images, teach

SECTIONS = ["Use", "Training data", "Measured", "What it stores", "Limits"]


def card_of(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def made_up(**changes: Any) -> dict[str, Any]:
    stored = {"count": 0, "bytes": 0}
    return {
        "prol": "0.1.0",
        "method": "ncm",
        "precision": "float32",
        "backbone": {"name": PAPER, "sha256": "ab" * 32},
        "preprocessing": {"size": 224},
        "classes": ["cat", 7],
        "seen": {"images": 3, "classes": 2, "per_class": [2, 1]},
        "footprint": {f"{name}_stored": stored for name in ("parameters", "statistics", "samples")},
        "run": None,
    } | changes


def test_saving_writes_a_card_that_hubs_and_people_can_read(tmp_path: Path) -> None:
    teach(prol.create("ncm", "tiny", device="cpu")).save(tmp_path / "pets")
    text = card_of(tmp_path / "pets")
    assert re.findall(r"^## (.*)", text, re.MULTILINE) == SECTIONS
    header = ModelCard(text).data.to_dict()
    assert (header["library_name"], header["pipeline_tag"]) == ("prol", "image-classification")
    assert header["license"] == "apache-2.0"
    assert "license_name" not in header
    assert "ncm" in header["tags"]
    for words in (
        "28 images, of 5 classes",
        "ant (6), bee (4)",
        "vit_tiny_patch16_128.distilled.md",
        "stores no image",
        "Nothing yet",
    ):
        assert words in text


def test_the_lines_of_python_in_the_card_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = teach(prol.create("ncm", "tiny", device="cpu"))
    learner.save(tmp_path / "pets")
    code = re.search(r"```python\n(.*?)```", card_of(tmp_path / "pets"), re.DOTALL)
    assert code is not None
    assert len(code[1].splitlines()) == 3
    monkeypatch.chdir(tmp_path)
    pixels = make_images(1, 5)
    exec(compile(code[1], "README.md", "exec"), {"image": Image.fromarray(pixels[0])})
    assert capsys.readouterr().out.strip() == learner.classes[int(learner.predict(pixels).argmax())]


def test_weights_for_research_only_say_so() -> None:
    first = {"name": "vit_tiny_patch8_64.tiny_imagenet", "sha256": "63" * 32}
    text = model_card(made_up(backbone=first), "pets", 100, "me")
    header = ModelCard(text).data.to_dict()
    assert (header["license"], header["license_name"]) == ("other", "prol-built-in-weights")
    assert "non-commercial" in text


def test_weights_of_the_hub_are_named_with_their_licence() -> None:
    header = ModelCard(model_card(made_up(), "pets", 100, "me")).data.to_dict()
    assert (header["base_model"], header["base_model_relation"]) == (f"timm/{PAPER}", "adapter")
    assert header["license"] == "apache-2.0"


def test_weights_in_a_file_are_named_without_the_folder_they_lie_in(tmp_path: Path, micro_vit: str) -> None:
    prol.create("ncm", micro_vit, device="cpu").save(tmp_path / "pets")
    text = card_of(tmp_path / "pets")
    assert str(Path(micro_vit.partition("@")[2]).parent) not in text
    assert "prol predict pets photo.jpg --backbone test_vit@small.safetensors" in text
    assert 'prol.load("pets", "test_vit@small.safetensors")' in text
    assert "license" not in ModelCard(text).data.to_dict()
    assert "prol does not know them" in text


@pytest.mark.parametrize(
    ("name", "title", "licence"),
    [
        ("vit_base_patch16_224.mae", "vit_base_patch16_224.mae", "cc-by-nc-4.0"),
        ("vit_tiny_patch16_224@random:3", "vit_tiny_patch16_224@random:3", None),
        (r"vit_tiny_patch16_224@C:\me\w.safetensors", "vit_tiny_patch16_224@w.safetensors", None),
        ("nobody_knows.this", "nobody_knows.this", None),
    ],
)
def test_terms_are_told_from_a_name(name: str, title: str, licence: str | None) -> None:
    terms = weights_terms(name)
    assert (terms.title, terms.licence) == (title, licence)


def test_names_cannot_break_the_card() -> None:
    names = ["a\n---\n# b", "`<script>`", "x | y", "\x1b[2J"]
    seen = {"images": None, "classes": 4, "per_class": None}
    text = model_card(made_up(classes=names, seen=seen, method='"\n---'), "a`b\nc", 100, "me\n# you")
    assert ModelCard(text).data.to_dict()["tags"][-1] == '"\n---'
    assert [line for line in text.splitlines() if line.startswith("# ")] == ["# a\\`b c"]
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\x1b" not in text


def test_a_card_owns_up_to_samples_and_to_classes_met_once() -> None:
    footprint = made_up()["footprint"]
    assert "those of that image" in model_card(made_up(), "pets", 100, "me")
    kept = footprint | {"samples_stored": {"count": 40, "bytes": 4000}}
    text = model_card(made_up(footprint=kept), "pets", 100, "me")
    assert "**It stores 40 samples**" in text
    assert "stores no image" not in text


def test_of_very_many_classes_only_some_are_named(tiny: ViT, tmp_path: Path) -> None:
    learner = prol.create("ncm", tiny)
    learner.boundary(list(range(150)))
    learner.learn(STREAM[0].images, list(range(7)))
    learner.save(tmp_path / "many")
    assert "99 (0), and 50 more" in card_of(tmp_path / "many")
