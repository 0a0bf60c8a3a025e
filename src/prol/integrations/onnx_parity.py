"""Whether an ONNX file returns the same scores as the learner that it was exported from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

if TYPE_CHECKING:
    from prol.learner import Learner

INPUT, OUTPUT = "images", "scores"

TOLERANCE = 1e-3
"""Largest difference of scores that counts as rounding, relative to the spread of the scores."""
LAST_BITS = 8 * float(np.finfo(np.float32).eps)
"""The same relative to the largest score: closer scores are indistinguishable in float32."""


@dataclass(frozen=True)
class Parity:
    """How far the file's scores are from the learner's on generated images.

    Attributes:
        images: how many were compared.
        same_answers: for how many of them both predict the same class.
        difference: the largest absolute difference of a score.
        spread: the range of the learner's scores of an image, averaged over images.
        largest: the largest absolute score of the learner.
    """

    images: int
    same_answers: int
    difference: float
    spread: float
    largest: float

    @property
    def relative(self) -> float:
        """The difference relative to the spread."""
        return self.difference / self.spread if self.spread > 0 else self.difference

    def agrees(self) -> bool:
        return self.difference <= max(TOLERANCE * self.spread, LAST_BITS * self.largest)

    def __str__(self) -> str:
        return (
            f"scores differ by at most {self.difference:.1e}, {self.relative:.1e} of their spread; "
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
    pairs = []
    for images in generated_images(learner.preprocessing.size):
        exported = torch.from_numpy(session.run([OUTPUT], {INPUT: images})[0])
        expected = learner.predict(images)
        if exported.shape != expected.shape:
            raise ValueError(f"the file returns scores {tuple(exported.shape)} instead of {tuple(expected.shape)}")
        pairs.append((expected.double(), exported.double()))
    expected, exported = (torch.cat(parts) for parts in zip(*pairs, strict=True))
    # A class without any sample has minus infinity in both; NaN never agrees.
    difference = torch.where(expected == exported, 0.0, (expected - exported).abs()).nan_to_num(torch.inf).max()
    finite = expected[:, expected.isfinite().all(0)]
    spread = (finite.amax(1) - finite.amin(1)).mean()
    same = (expected.argmax(1) == exported.argmax(1)).sum()
    return Parity(len(expected), int(same), float(difference), float(spread), float(finite.abs().max()))


def generated_images(size: int) -> Iterator[NDArray[np.uint8]]:
    """Batches `[N, H, W, 3]` of coarse random patterns with noise, in the network's input size and in others."""
    random = np.random.default_rng(0)
    shapes = [(1, size, size), (3, size, size), (1, size + 9, 2 * size + 1), (3, 2 * size, size // 2 + 1)]
    for count, height, width in shapes:
        coarse = random.integers(0, 256, (count, 4, 4, 3))
        rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
        clean = coarse[:, rows][:, :, columns]
        yield np.clip(clean + random.integers(-30, 31, clean.shape), 0, 255).astype(np.uint8)


def first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
