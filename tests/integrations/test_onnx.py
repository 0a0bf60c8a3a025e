"""Scores in onnxruntime are those of the learner, and a file with other scores is never written."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from small_learners import METHODS, small_vit, taught
from torch import Tensor

import prol
from prol import registry
from prol.backbones import Pixels, Preprocessing, evaluation_input
from prol.integrations.onnx import export_onnx, preprocess, require_parity
from prol.learner import Learner
from prol.methods.closed_form.ncm import NCM
from prol.testing.stream import make_images


def scores_of(file: Path, images: NDArray[np.uint8]) -> Tensor:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(["scores"], {"images": images})[0])


def require_same_scores(learner: Learner, file: Path) -> None:
    """One image and three, of a size that neither was taught with."""
    for count, shape in ((1, (17, 19)), (3, (17, 19)), (3, (30, 11)), (1, (12, 12))):
        images = np.random.default_rng(count).integers(0, 256, (count, *shape, 3), dtype=np.uint8)
        own, theirs = learner.predict(images), scores_of(file, images)
        assert theirs.dtype == torch.float32
        known = own.isfinite()
        assert torch.equal(theirs.isfinite(), known)
        assert torch.equal(theirs[~known], own[~known])
        rounding = 4 * torch.finfo(torch.float32).eps * own[known].abs().max()
        assert (theirs - own)[known].abs().max() <= rounding + 1e-4 * (own[known].max() - own[known].min())
        assert torch.equal(theirs.argmax(1), own.argmax(1))


def test_no_method_is_left_out() -> None:
    assert set(METHODS) == set(registry.names("methods"))


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name != "ncm"])
def test_every_method_predicts_as_in_torch(method: str, tmp_path: Path) -> None:
    learner = taught(method)
    learner.boundary(["fox"])  # without any sample
    before = learner.state()
    parity = export_onnx(learner, tmp_path / "model.onnx")
    assert (parity.images, parity.same_answers) == (8, 8)
    assert parity.relative < 1e-3
    require_same_scores(learner, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert all(torch.equal(tensor, learner.state()[0][name]) for name, tensor in before[0].items())


@pytest.fixture(scope="module")
def learner() -> Learner:
    return taught("ncm")


@pytest.fixture(scope="module")
def file(learner: Learner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "deep" / "model.onnx"
    export_onnx(learner, path, {"model_sha256": "abc"})
    return path


def test_predictions_of_class_means_are_those_of_torch(learner: Learner, file: Path) -> None:
    require_same_scores(learner, file)
    assert [path.name for path in file.parent.iterdir()] == ["model.onnx"]


def test_the_file_says_what_it_is_and_nothing_of_this_machine(learner: Learner, file: Path) -> None:
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    said = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(said["classes"]) == learner.classes
    assert json.loads(said["preprocessing"])["crop_pct"] == 0.8
    assert (said["method"], said["backbone_sha256"], said["model_sha256"]) == ("ncm", "small", "abc")
    sides = [side.dim_param for side in model.graph.input[0].type.tensor_type.shape.dim]
    assert sides == ["N", "H", "W", ""]
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert str(Path(prol.__file__).parent).encode() not in file.read_bytes()


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("crop_pct", [1.0, 0.9, 0.875])
def test_images_are_prepared_in_the_graph_as_everywhere(interpolation: Any, crop_pct: float) -> None:
    how = Preprocessing(14, crop_pct, interpolation, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    random = np.random.default_rng(0)
    for height, width in ((14, 14), (15, 15), (16, 16), (1, 1), (5, 14), (40, 33), (33, 40), (100, 7), (14, 77)):
        images = torch.from_numpy(random.integers(0, 256, (2, height, width, 3), dtype=np.uint8))
        wanted = evaluation_input(images.permute(0, 3, 1, 2), how, images.device, torch.float32)
        assert torch.allclose(preprocess(images, how, torch.float32), wanted, atol=1e-6)


def test_a_damaged_file_does_not_pass_for_the_learner(learner: Learner, file: Path, tmp_path: Path) -> None:
    assert require_parity(file, learner).agrees()
    model = onnx.load(file)
    largest = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    values = onnx.numpy_helper.to_array(largest).copy()
    values.flat[0] += 1
    largest.raw_data = values.tobytes()
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ValueError, match="predicts differently"):
        require_parity(tmp_path / "other.onnx", learner)
    (tmp_path / "cut.onnx").write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ValueError, match="does not run"):
        require_parity(tmp_path / "cut.onnx", learner)
    with pytest.raises(ValueError, match=r"does not run.*scores \(1, 5\) instead of \(1, 2\)"):
        require_parity(file, few_classes())


def few_classes() -> Learner:
    other = prol.create("ncm", small_vit())
    other.learn(make_images(2, 0), ["ant", "bee"])
    return other


class PredictsDifferently(NCM):
    """Its graph differs from its predictions."""

    name: ClassVar[str] = "predicts_differently"

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        scores = super().scores(pixels, encoded)
        return scores * 1.01 if torch.compiler.is_compiling() else scores


class BranchesOnValues(NCM):
    """Depends on computed values, which no graph can."""

    name: ClassVar[str] = "branches_on_values"

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        scores = super().scores(pixels, encoded)
        return scores if float(scores.sum()) > 0 else scores + 1


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (BranchesOnValues, "cannot be exported to ONNX"),
        pytest.param(PredictsDifferently, "predicts differently", marks=pytest.mark.slow),
    ],
)
def test_what_does_not_agree_is_not_written(kind: type[NCM], message: str, tmp_path: Path) -> None:
    one = kind(small_vit(), kind.read_options({}))
    one.learn(make_images(4, 0), ["ant", "bee", "cat", "ant"])
    (tmp_path / "model.onnx").write_text("as it was")
    with pytest.raises(ValueError, match=message) as raised:
        export_onnx(one, tmp_path / "model.onnx")
    assert "\n" not in str(raised.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert (tmp_path / "model.onnx").read_text() == "as it was"


def test_what_cannot_be_exported_says_why(learner: Learner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"batch_vote assigns the same prompts .* one image at a time"):
        export_onnx(taught("l2p", test_selection="batch_vote"), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="has learnt nothing yet"):
        export_onnx(prol.create("ncm", small_vit()), tmp_path / "model.onnx")
    announced = prol.create("prol_plus", small_vit(), **METHODS["prol_plus"])
    announced.boundary(["ant"])
    with pytest.raises(ValueError, match="has learnt nothing yet"):
        export_onnx(announced, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match=r"on cpu in float64 .* precision='float32'"):
        export_onnx(taught("ncm", torch.float64), tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="it is a folder"):
        export_onnx(learner, tmp_path)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ValueError, match=r"pip install 'prol\[onnx\]'"):
        export_onnx(learner, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []
