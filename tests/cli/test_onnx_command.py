"""`prol onnx`: from a saved learner to a file for other programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import prol
from prol.testing.stream import STREAM, make_images, teach


@pytest.fixture
def saved(small_vit: str, tmp_path: Path) -> Path:
    teach(prol.create("ncm", small_vit, device="cpu", seed=4), STREAM[:1]).save(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.slow
def test_a_saved_learner_becomes_a_file_that_answers_the_same(command, saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    outcome = command("onnx", str(saved), str(file))
    assert (outcome.code, outcome.err) == (0, "")
    assert "ncm with 3 classes, written to" in outcome.out
    assert "8 of 8 predictions are the same" in outcome.out
    assert "The file holds the weights vit_tiny_patch16_224@small.safetensors" in outcome.out
    said = {entry.key: entry.value for entry in onnx.load(file).metadata_props}
    learner = prol.load(saved, device="cpu")
    assert (said["backbone"], said["backbone_sha256"]) == (
        "vit_tiny_patch16_224@small.safetensors",
        learner.backbone.sha256,
    )
    assert said["model_sha256"] in (saved / "meta.json").read_text()
    images = make_images(2, 3)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    scores, probabilities = session.run(None, {"images": images})
    assert np.allclose(scores, learner.predict(images).numpy(), atol=1e-5)
    assert np.allclose(probabilities, learner.classify(images).probabilities.numpy(), atol=1e-3)
    assert "It has no output `unknown`: fewer than 10 images" in outcome.out
    outcome = command("onnx", str(saved), str(file), "--no-unknown")
    assert "It has no output `unknown`: it was not wanted" in outcome.out


def test_what_cannot_be_written_is_told_in_one_line(command, saved: Path, tmp_path: Path) -> None:
    for folder, out, words in (
        (tmp_path / "nowhere", tmp_path / "model.onnx", "no saved learner at"),
        (saved, saved, "it is a folder; name a file"),
    ):
        outcome = command("onnx", str(folder), str(out))
        assert (outcome.code, outcome.err.count("\n")) == (2, 1)
        assert words in outcome.err
    assert not (tmp_path / "model.onnx").exists()
