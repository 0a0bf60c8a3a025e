"""Predictions in onnxruntime are those of the learner, and a file that predicts differently is never written."""

from __future__ import annotations

import json
import re
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
from prol.integrations.onnx import export_onnx
from prol.integrations.onnx_graph import ConstantSolves, preprocess, require_parity
from prol.learner import Learner
from prol.methods.closed_form.ncm import NCM
from prol.testing.stream import make_images

WITHOUT_FAMILIARITY = {"logreg", "head_only", "finetune", "coda_prompt", "convprompt", "flyprompt", "lae"}
"""And the replay methods."""


def outputs_of(file: Path, images: NDArray[np.uint8]) -> dict[str, Tensor]:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, map(torch.from_numpy, session.run(names, {"images": images})), strict=True))


def metadata_of(file: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(file).metadata_props}


def require_same_predictions(learner: Learner, file: Path) -> None:
    """One image and three, of a size that neither was taught with."""
    for count, shape in ((1, (17, 19)), (3, (17, 19)), (3, (30, 11)), (1, (12, 12))):
        images = np.random.default_rng(count).integers(0, 256, (count, *shape, 3), dtype=np.uint8)
        own, found, classified = learner.predict(images), outputs_of(file, images), learner.classify(images)
        scores = found["scores"]
        assert {values.dtype for values in found.values()} == {torch.float32}
        known = own.isfinite()
        assert torch.equal(scores.isfinite(), known)
        assert torch.equal(scores[~known], own[~known])
        rounding = 4 * torch.finfo(torch.float32).eps * own[known].abs().max()
        assert (scores - own)[known].abs().max() <= rounding + 1e-4 * (own[known].max() - own[known].min())
        assert torch.equal(scores.argmax(1), own.argmax(1))
        # Scores that share most of their digits have probabilities of fewer.
        assert (found["probabilities"] - learner.probable(scores)).abs().max() < 1e-6
        assert (found["probabilities"] - classified.probabilities).abs().max() < 1e-2
        assert list(found) == ["scores", "probabilities", *(["unknown", "familiarity"] * (len(found) > 2))]
        assert ("unknown" in found) == (classified.unknown is not None)
        if classified.unknown is not None:
            assert (found["unknown"] - classified.unknown).abs().max() < 1e-3
            familiarity = learner.familiarity(images)
            assert familiarity is not None
            assert torch.allclose(found["familiarity"], familiarity, rtol=1e-3, atol=1e-4)


def observed(learner: Learner, images: int = 20) -> Learner:
    """Taught until at least so many images of known classes were predicted before they were learnt."""
    seed = 100
    while learner.calibration.count < images:
        learner.learn(make_images(15, seed), ["ant", "bee", "cat", "dog", "eel"] * 3)
        seed += 1
    return learner


def test_no_method_is_left_out() -> None:
    assert set(METHODS) == set(registry.names("methods"))


@pytest.mark.parametrize(
    "method",
    [name if name == "prol_plus" else pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name != "ncm"],
)
def test_every_method_predicts_as_in_torch(method: str, tmp_path: Path) -> None:
    learner = observed(taught(method))
    learner.boundary(["fox"])  # without any sample
    before = learner.state()
    parity = export_onnx(learner, tmp_path / "model.onnx")
    assert (parity.images, parity.same_answers) == (8, 8)
    without = method in WITHOUT_FAMILIARITY or registry.method(method).from_scratch
    assert parity.without_unknown == (f"{method} has no familiarity" if without else "")
    assert (parity.unknown is None) == without
    require_same_predictions(learner, tmp_path / "model.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert all(torch.equal(tensor, learner.state()[0][name]) for name, tensor in before[0].items())


@pytest.fixture(scope="module")
def learner() -> Learner:
    return observed(taught("ncm"))


@pytest.fixture(scope="module")
def file(learner: Learner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx") / "deep" / "model.onnx"
    export_onnx(learner, path, {"model_sha256": "abc"})
    return path


def test_predictions_of_class_means_are_those_of_torch(learner: Learner, file: Path) -> None:
    require_same_predictions(learner, file)
    assert "unknown" in outputs_of(file, make_images(1, 0))
    assert [path.name for path in file.parent.iterdir()] == ["model.onnx"]


def test_the_file_says_what_it_is_and_nothing_of_this_machine(learner: Learner, file: Path) -> None:
    model = onnx.load(file)
    onnx.checker.check_model(model, full_check=True)
    said = metadata_of(file)
    assert json.loads(said["classes"]) == learner.classes
    temperature, _, relative = said["temperature"].partition(" * ")
    assert float(temperature) == learner.calibration.usual_temperature(None)
    spread = learner.calibration.usual_spread()
    assert relative == f"(standard deviation of the C scores / {spread!r}) ** (C / (C + 30))"
    assert said["unknown"].startswith("share of images of known classes")
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


@pytest.mark.parametrize("what", ["spread", "familiarity"])
def test_another_calibration_does_not_pass_for_the_learners(what: str, learner: Learner, file: Path) -> None:
    other = learner.clone()
    assert require_parity(file, other).agrees()
    setattr(other.calibration, what, 1.01 * getattr(other.calibration, what))
    with pytest.raises(ValueError, match="predicts differently"):
        require_parity(file, other)


@pytest.mark.slow
def test_before_any_observation_the_temperature_is_the_spread_of_an_images_scores(tmp_path: Path) -> None:
    fresh = prol.create("ncm", small_vit())
    fresh.learn(make_images(4, 0), ["ant", "bee", "cat", "ant"])
    assert fresh.calibration.count == 0
    parity = export_onnx(fresh, tmp_path / "model.onnx")
    assert parity.without_unknown == "fewer than 10 images of known classes were observed"
    require_same_predictions(fresh, tmp_path / "model.onnx")
    said = metadata_of(tmp_path / "model.onnx")
    assert said["temperature"] == "the standard deviation of each image's scores"
    assert said["unknown"] == f"no such output: {parity.without_unknown}"


class FamiliarityBranches(NCM):
    """Its familiarity cannot be traced, its scores can."""

    name: ClassVar[str] = "familiarity_branches"

    def score_familiarity(self, encoded: Tensor) -> Tensor:
        familiarity = super().score_familiarity(encoded)
        return familiarity if float(familiarity.sum()) > 0 else familiarity - 1


class FamiliarityDiffers(NCM):
    """Its familiarity in a graph is another one."""

    name: ClassVar[str] = "familiarity_differs"

    def score_familiarity(self, encoded: Tensor) -> Tensor:
        familiarity = super().score_familiarity(encoded)
        return familiarity * 0.99 if torch.compiler.is_compiling() else familiarity


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (FamiliarityBranches, "with it, familiarity_branches cannot be exported to ONNX"),
        (FamiliarityDiffers, "with it, the ONNX model of .* predicts differently"),
    ],
)
def test_a_familiarity_that_cannot_be_exported_is_left_out(
    kind: type[NCM], reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    one = observed(kind(small_vit(), kind.read_options({})))
    parity = export_onnx(one, tmp_path / "model.onnx")
    assert re.match(reason, parity.without_unknown)
    assert metadata_of(tmp_path / "model.onnx")["unknown"] == f"no such output: {parity.without_unknown}"
    images = make_images(3, 0)
    found, own = outputs_of(tmp_path / "model.onnx", images), one.classify(images)
    assert list(found) == ["scores", "probabilities"]
    assert torch.allclose(found["probabilities"].double(), own.probabilities, atol=1e-4)
    assert own.unknown is not None
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_unknown_is_left_out_on_request(learner: Learner, tmp_path: Path) -> None:
    assert export_onnx(learner, tmp_path / "model.onnx", unknown=False).without_unknown == "it was not wanted"
    assert list(outputs_of(tmp_path / "model.onnx", make_images(1, 0))) == ["scores", "probabilities"]


def test_a_product_with_an_inverse_solves_what_was_to_be_solved() -> None:
    random = torch.Generator().manual_seed(0)
    factors = torch.randn(2, 6, 6, generator=random, dtype=torch.float64).tril() + 6 * torch.eye(6)
    one, right = factors[0], torch.randn(6, 3, generator=random, dtype=torch.float64)
    solves = ConstantSolves()
    for _ in range(2):  # the second time with the inverses of the first
        with solves:
            found = (
                torch.linalg.solve_triangular(one, right, upper=False),
                torch.linalg.solve_triangular(factors, right, upper=False),
            )
        for solution, system in zip(found, (one, factors), strict=True):
            assert torch.allclose(system @ solution, right.expand_as(solution))
    assert len(solves.found) == 2


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
