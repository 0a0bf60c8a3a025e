"""Whether an ONNX file answers as the learner that it was made from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from prol.integrations.onnx_graph import INPUT, OUTPUT

if TYPE_CHECKING:
    from prol.learner import Learner

TOLERANCE = 1e-3
"""Largest difference of a score that is taken for rounding, in units of the scores' spread."""
LAST_BITS = 8 * float(np.finfo(np.float32).eps)
"""The same in units of the largest score: scores that differ less than this are one to a float32."""


@dataclass(frozen=True)
class Parity:
    """How far the file's scores are from the learner's on generated images.

    `difference` is the largest one of a score, `spread` the range of the learner's own scores of an image, on average
    over the images, `largest` their largest size, and `same_answers` the images of which both say the same.
    """

    images: int
    same_answers: int
    difference: float
    spread: float
    largest: float

    @property
    def relative(self) -> float:
        """The difference in units of the spread."""
        return self.difference / self.spread if self.spread > 0 else self.difference

    def agrees(self) -> bool:
        return self.difference <= max(TOLERANCE * self.spread, LAST_BITS * self.largest)

    def __str__(self) -> str:
        return (
            f"scores differ by at most {self.difference:.1e}, {self.relative:.1e} of their spread; "
            f"{self.same_answers} of {self.images} answers are the same"
        )


def measure_parity(file: Path, learner: Learner) -> Parity:
    """Asks both about the same generated images, one and several at a time, of several sizes."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    both = []
    for images in generated_images(learner.preprocessing.size):
        theirs = torch.from_numpy(session.run([OUTPUT], {INPUT: images})[0])
        own = learner.predict(images)
        if theirs.shape != own.shape:
            raise ValueError(f"the file gives scores {tuple(theirs.shape)} in place of {tuple(own.shape)}")
        both.append((own.double(), theirs.double()))
    own, theirs = (torch.cat(parts) for parts in zip(*both, strict=True))
    # Minus infinity, of a class of which nothing was learnt yet, must be there too; what is not a number never agrees.
    difference = torch.where(own == theirs, 0.0, (own - theirs).abs()).nan_to_num(torch.inf).max()
    known = own[:, own.isfinite().all(0)]
    spread = (known.amax(1) - known.amin(1)).mean()
    same = (own.argmax(1) == theirs.argmax(1)).sum()
    return Parity(len(own), int(same), float(difference), float(spread), float(known.abs().max()))


def generated_images(size: int) -> Iterator[NDArray[np.uint8]]:
    """Batches `[N, H, W, 3]` of coarse random patterns under noise, of the network's own size and of others."""
    random = np.random.default_rng(0)
    shapes = [(1, size, size), (3, size, size), (1, size + 9, 2 * size + 1), (3, 2 * size, size // 2 + 1)]
    for count, height, width in shapes:
        coarse = random.integers(0, 256, (count, 4, 4, 3))
        rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
        clean = coarse[:, rows][:, :, columns]
        yield np.clip(clean + random.integers(-30, 31, clean.shape), 0, 255).astype(np.uint8)
