"""Folders that anybody may have made: loading runs nothing of theirs, and says in one line what is wrong."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import prol
from golden_files import tiny_vit
from prol.backbones import ViT
from prol.runs.format import file_sha256
from prol.testing.stream import STREAM, make_images, teach


class WritesAFile:
    """Unpickling it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


@pytest.fixture
def saved(tmp_path: Path, tiny: ViT) -> Path:
    teach(prol.create("ncm", tiny, seed=4), STREAM[:3]).save(tmp_path / "saved")
    return tmp_path / "saved"


def read(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    return content


def change_meta(folder: Path, **values: Any) -> None:
    (folder / "meta.json").write_text(json.dumps(read(folder) | values), encoding="utf-8")


def safetensors_file(**entries: str) -> bytes:
    header = json.dumps({"sums": {"shape": [0], "data_offsets": [0, 0], **entries}}).encode()
    return len(header).to_bytes(8, "little") + header


def replace_model(folder: Path, content: bytes) -> None:
    """As somebody would who can compute a checksum."""
    (folder / "model.safetensors").write_bytes(content)
    change_meta(folder, model_sha256=file_sha256(folder / "model.safetensors"))


def flip_last_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def refusal(folder: Path, backbone: ViT | None) -> str:
    with pytest.raises((ValueError, OSError)) as raised:
        prol.load(folder, backbone, device="cpu")
    said = str(raised.value)
    assert "\n" not in said
    return said


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: flip_last_bit(folder / "model.safetensors"), "is damaged: its checksum"),
        (lambda folder: replace_model(folder, b""), "is not a readable safetensors file"),
        (lambda folder: replace_model(folder, b"\xff" * 64), "is not a readable safetensors file"),
        (lambda folder: replace_model(folder, safetensors_file(dtype="a\nb")), "is not a readable safetensors file"),
        (lambda folder: (folder / "meta.json").write_text("{"), "meta.json is damaged"),
        (lambda folder: (folder / "meta.json").write_text("[]"), "meta.json is damaged"),
        (lambda folder: (folder / "meta.json").write_text("[" * 100_000), "meta.json is damaged"),
        (lambda folder: (folder / "meta.json").write_bytes(b"\xff\xfe{}"), "meta.json is damaged"),
        (lambda folder: change_meta(folder, format=99), "has format 99"),
        (lambda folder: change_meta(folder, method="os.system"), "unknown method 'os.system'"),
        (lambda folder: change_meta(folder, method="os:system"), "unknown method 'os:system'"),
        (lambda folder: change_meta(folder, method="/tmp/evil.py"), "unknown method '/tmp/evil.py'"),
        (lambda folder: change_meta(folder, method=["ncm"]), "method is ['ncm'], not text"),
        (lambda folder: change_meta(folder, seed="4"), "seed is '4', not a whole number"),
        (lambda folder: change_meta(folder, seed=True), "seed is True, not a whole number"),
        (lambda folder: change_meta(folder, seed=-1), "seed must be a whole number"),
        (lambda folder: change_meta(folder, backbone="builtin"), "backbone is 'builtin', not {}"),
        (lambda folder: change_meta(folder, backbone={"name": "tiny"}), "backbone.sha256 is missing"),
        (
            lambda folder: change_meta(folder, backbone={"name": "other", "sha256": "f" * 64}),
            "open the original weights",
        ),
        (lambda folder: change_meta(folder, classes=["ant", {}]), "a label must be text or a whole number"),
        (lambda folder: change_meta(folder, classes=["ant", "ant"]), "'ant' is announced twice"),
        (lambda folder: change_meta(folder, state=[]), "state is [], not {}"),
        (lambda folder: change_meta(folder, state={}), "state.method is missing"),
        (lambda folder: change_meta(folder, options={"distance": "far"}), "distance='far' is not valid"),
        (lambda folder: change_meta(folder, options={"run": "rm"}), "unknown option 'run'"),
        (lambda folder: change_meta(folder, preprocessing={"size": 224}), "was learnt with preprocessing"),
        (lambda folder: change_meta(folder, method="head_only", options={}), "does not fit method 'head_only'"),
    ],
)
def test_an_artifact_that_cannot_be_trusted_is_refused_in_one_line(
    saved: Path, tiny: ViT, spoil: Callable[[Path], Any], message: str
) -> None:
    spoil(saved)
    assert message in refusal(saved, tiny)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vit_tiny_patch16_224@weights.safetensors", "which is not here"),
        ("vit_tiny_patch16_224@../../etc/passwd", "which is not here"),
        ("vit_tiny_patch16_224@/nowhere/weights.safetensors", "which is not here"),
        ("vit_tiny_patch16_224@PICKLE", "as .safetensors where you trust it"),
        ("vit_tiny_patch16_224@random:evil", "whole number as seed"),
        ("local-dir:/tmp", "is not known to timm"),
        ("hf-hub:somebody/something", "is not in the hub cache"),
        ("/tmp/evil.py", "is not known to timm"),
    ],
)
def test_weights_are_opened_by_known_names_and_as_safetensors_only(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    mark, weights = tmp_path / "mark", tmp_path / "weights.pt"
    weights.write_bytes(pickle.dumps(WritesAFile(mark)))
    change_meta(saved, backbone={"name": name.replace("PICKLE", str(weights)), "sha256": file_sha256(weights)})
    assert message in refusal(saved, None)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["model.pkl", "pytorch_model.bin", "optimizer.pt", "LAST.CKPT"])
def test_a_folder_with_a_pickle_is_refused_and_the_pickle_never_opened(
    saved: Path, tiny: ViT, tmp_path: Path, name: str
) -> None:
    (saved / name).write_bytes(pickle.dumps(WritesAFile(tmp_path / "mark")))
    assert f"it holds {name}" in refusal(saved, tiny)
    assert not (tmp_path / "mark").exists()


def test_a_pickle_in_place_of_the_tensors_is_refused_and_never_opened(saved: Path, tiny: ViT, tmp_path: Path) -> None:
    replace_model(saved, pickle.dumps(WritesAFile(tmp_path / "mark")))
    assert "is not a readable safetensors file" in refusal(saved, tiny)
    assert not (tmp_path / "mark").exists()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=5), parts, max_size=3),
    max_leaves=5,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_json_in_any_place_is_refused_in_one_line_or_harmless(saved: Path, data: st.DataObject) -> None:
    original = (saved / "meta.json").read_text(encoding="utf-8")
    try:
        meta = json.loads(original)
        change_meta(saved, **{data.draw(st.sampled_from(sorted(meta))): data.draw(JSON)})
        said, learner = "", None
        try:
            learner = prol.load(saved, tiny_vit())
        except (ValueError, OSError) as error:
            said = str(error)
        assert "\n" not in said
        assert learner is None or len(learner.predict(make_images(1, 0))) == 1
    finally:
        (saved / "meta.json").write_text(original, encoding="utf-8")
