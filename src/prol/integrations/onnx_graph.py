"""What an ONNX file computes, a learner as one traced function of uint8 images, and whether it agrees with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from prol.backbones.resampling import filter_weights, resample
from prol.calibration import probabilities
from prol.integrations import first_line

if TYPE_CHECKING:
    from prol.backbones import Preprocessing
    from prol.learner import Learner

INPUT, SCORES, PROBABILITIES, UNKNOWN, FAMILIARITY = "images", "scores", "probabilities", "unknown", "familiarity"


class Predictions(nn.Module):
    """From uint8 RGB images `[N, H, W, 3]` to float32 scores and probabilities `[N, C]`.

    Then, if wanted, `unknown` and familiarity `[N]`: `unknown` alone says little where it is close to 0 or 1, and a
    comparison with the learner needs more. What is solved lazily must be solved before it is traced: call it once.
    """

    def __init__(self, learner: Learner, unknown: bool) -> None:
        super().__init__()
        self.learner, self.unknown = learner, unknown
        self.prior = learner.prior_temperature()
        self.solves = ConstantSolves()

    @property
    def names(self) -> list[str]:
        return [SCORES, PROBABILITIES, *([UNKNOWN, FAMILIARITY] if self.unknown else [])]

    @torch.no_grad()
    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        # `predict_with_familiarity` reads images and splits batches, which no graph can.
        learner = self.learner
        with self.solves:
            inputs = preprocess(images, learner.preprocessing, learner.backbone.dtype)
            encoded = learner.encoded(inputs) if self.unknown and learner.encoding != "none" else None
            scores = learner.scores(inputs, encoded).float()
            temperature = learner.calibration.temperature(self.prior, scores)
            outputs = scores, probabilities(scores, temperature).float()
            if not self.unknown:
                return outputs
            familiarity = learner.familiarity_of(inputs, encoded)
            assert familiarity is not None
            unknown = learner.calibration.unknown(familiarity.float())
            assert unknown is not None
        return *outputs, unknown, familiarity.float()


class ConstantSolves(TorchFunctionMode):
    """Systems with a constant triangular matrix are solved by a product with an inverse: ONNX has no solver.

    The inverses are computed in the first call, in float64, and found again by their matrices in later ones.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        named: Mapping[str, Any] = kwargs or {}
        if func is not torch.linalg.solve_triangular or set(named) != {"upper"}:
            return func(*args, **named)
        matrix, right = args
        if id(matrix) not in self.found:
            eye = torch.eye(matrix.shape[-1], dtype=torch.float64)
            # The matrix is stored too: its id is its own as long as it lives.
            self.found[id(matrix)] = matrix, func(matrix.double(), eye, **named).to(matrix.dtype)
        return self.found[id(matrix)][1] @ right


def preprocess(images: Tensor, how: Preprocessing, dtype: torch.dtype) -> Tensor:
    """What `prol.backbones.evaluation_input` returns for a batch, `[N, 3, size, size]`.

    The crop is computed by operations of the graph, since height and width are dynamic.
    """
    height, width = images.shape[1], images.shape[2]
    shorter = torch.minimum(_scalar(height), _scalar(width))
    rows, columns = (
        filter_weights(_central_crop(_scalar(side), shorter, how), side, how.size, how.interpolation, crop_first=False)
        for side in (height, width)
    )
    batch = images.permute(0, 3, 1, 2).to(dtype) / 255
    resized = resample(batch, rows.to(dtype), columns.to(dtype)).clamp(0, 1)
    mean, std = (torch.tensor(values, dtype=dtype).view(3, 1, 1) for values in (how.mean, how.std))
    return (resized - mean) / std


def _scalar(side: Any) -> Tensor:
    return torch.scalar_tensor(side, dtype=torch.float64)


def _central_crop(side: Tensor, shorter: Tensor, how: Preprocessing) -> Tensor:
    """Start and length along one side of the crop, in pixels of the original image, `[1, 2]`.

    Both are whole pixels of the resized image, rounded as in `prol.backbones.preprocess`; float64 holds them exactly.
    """
    resized = torch.floor(side * math.floor(how.size / how.crop_pct) / shorter)
    start = torch.round((resized - how.size) / 2) * side / resized
    return torch.stack([start, how.size * side / resized]).unsqueeze(0)


TOLERANCE = 1e-3
"""Largest difference of scores that counts as rounding, relative to the spread of the scores."""
LAST_BITS = 8 * float(np.finfo(np.float32).eps)
"""The same relative to the largest score: closer scores are indistinguishable in float32."""
PROBABILITY_TOLERANCE = 1e-5
"""The same for probabilities of the same scores."""
FAMILIARITY_TOLERANCE = 1e-3
"""The same for `unknown`, and for familiarity, relative to its deviation from that of known images."""


@dataclass(frozen=True)
class Parity:
    """How far the file's outputs are from the learner's on generated images.

    Attributes:
        images: how many were compared.
        same_answers: for how many of them both predict the same class.
        difference: the largest absolute difference of a score.
        spread: the range of the learner's scores of an image, averaged over images.
        largest: the largest absolute score of the learner.
        probability: the largest absolute difference of a probability from the learner's for the file's scores.
        unknown: the largest absolute difference of `unknown`; None where the file has no such output.
        familiarity: the largest difference of familiarity, relative to its deviation from the mean of known images, or
            to their standard deviation where that is larger.
        without_unknown: why the file has neither.
    """

    images: int
    same_answers: int
    difference: float
    spread: float
    largest: float
    probability: float
    unknown: float | None = None
    familiarity: float | None = None
    without_unknown: str = ""

    @property
    def relative(self) -> float:
        """The difference relative to the spread."""
        return self.difference / self.spread if self.spread > 0 else self.difference

    def agrees(self) -> bool:
        scores = self.difference <= max(TOLERANCE * self.spread, LAST_BITS * self.largest)
        unknown = max(self.unknown or 0.0, self.familiarity or 0.0) <= FAMILIARITY_TOLERANCE
        return scores and self.probability <= PROBABILITY_TOLERANCE and unknown

    def __str__(self) -> str:
        unknown = ""
        if self.unknown is not None:
            unknown = f", unknown by {self.unknown:.1e}, familiarity by {self.familiarity:.1e} of its deviation"
        return (
            f"scores differ by at most {self.difference:.1e}, {self.relative:.1e} of their spread, probabilities of "
            f"the same scores by {self.probability:.1e}{unknown}; "
            f"{self.same_answers} of {self.images} predictions are the same"
        )


def require_parity(file: Path, learner: Learner) -> Parity:
    """Compares a file with the learner and refuses one that does not agree."""
    try:
        parity = _compare(file, learner)
    except Exception as error:  # onnxruntime's exceptions share no base class
        message = f"the ONNX model of {learner.name} does not run, so it is not written: {first_line(error)}"
        raise ValueError(message) from error
    if not parity.agrees():
        raise ValueError(f"the ONNX model of {learner.name} predicts differently, so it is not written: {parity}")
    return parity


def _compare(file: Path, learner: Learner) -> Parity:
    """Predicts the same generated images with both, one and several at a time, of several sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    pairs: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in names}
    usual = learner.calibration.usual_familiarity()
    for images in generated_images(learner.preprocessing.size):
        exported = dict(zip(names, map(torch.from_numpy, session.run(names, {INPUT: images})), strict=True))
        expected = _of_learner(learner, images, exported[SCORES])
        for name, values in exported.items():
            pairs[name].append((expected[name].double(), values.double()))
    expected, exported = ({name: torch.cat([pair[at] for pair in pairs[name]]) for name in names} for at in (0, 1))
    if usual is not None and FAMILIARITY in names:  # an image that is like no other has values of another size
        unit = (expected[FAMILIARITY] - usual[0]).abs().clamp(min=usual[1])
        expected[FAMILIARITY], exported[FAMILIARITY] = expected[FAMILIARITY] / unit, exported[FAMILIARITY] / unit
    differences = {name: _difference(expected[name], exported[name]) for name in names}
    scores = expected[SCORES]
    finite = scores[:, scores.isfinite().all(0)]
    return Parity(
        images=len(scores),
        same_answers=int((scores.argmax(1) == exported[SCORES].argmax(1)).sum()),
        difference=differences[SCORES],
        spread=float((finite.amax(1) - finite.amin(1)).mean()),
        largest=float(finite.abs().max()),
        probability=differences[PROBABILITIES],
        unknown=differences.get(UNKNOWN),
        familiarity=differences.get(FAMILIARITY),
    )


def _of_learner(learner: Learner, images: NDArray[np.uint8], exported: Tensor) -> dict[str, Tensor]:
    """What all outputs must be, given the scores `[N, C]` that the file returned."""
    scores, familiarity = learner.predict_with_familiarity(images)
    if exported.shape != scores.shape:
        raise ValueError(f"the file returns scores {tuple(exported.shape)} instead of {tuple(scores.shape)}")
    outputs = {SCORES: scores, PROBABILITIES: learner.probable(exported)}
    unknown = None if familiarity is None else learner.calibration.unknown(familiarity)
    if familiarity is not None and unknown is not None:
        outputs |= {UNKNOWN: unknown, FAMILIARITY: familiarity}
    return outputs


def _difference(expected: Tensor, exported: Tensor) -> float:
    """The largest; a class without any sample has minus infinity in both, and NaN never agrees."""
    if expected.shape != exported.shape:
        raise ValueError(f"the file returns {tuple(exported.shape)} instead of {tuple(expected.shape)}")
    return float(torch.where(expected == exported, 0.0, (expected - exported).abs()).nan_to_num(torch.inf).max())


def generated_images(size: int) -> Iterator[NDArray[np.uint8]]:
    """Batches `[N, H, W, 3]` of coarse random patterns with noise, in the network's input size and in others."""
    random = np.random.default_rng(0)
    shapes = [(1, size, size), (3, size, size), (1, size + 9, 2 * size + 1), (3, 2 * size, size // 2 + 1)]
    for count, height, width in shapes:
        coarse = random.integers(0, 256, (count, 4, 4, 3))
        rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
        clean = coarse[:, rows][:, :, columns]
        yield np.clip(clean + random.integers(-30, 31, clean.shape), 0, 255).astype(np.uint8)
