"""Predictions for image files, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from prol.answers import Answer, ranked
from prol.data.base import Unreadable
from prol.data.image_files import FileSplit
from prol.data.prefetch import prefetched

if TYPE_CHECKING:
    from prol.learner import Learner


@dataclass(frozen=True)
class ImagePredictions:
    """An image file and its predictions, best first."""

    image: Path
    predictions: list[Answer]


def predict_files(
    learner: Learner, images: Sequence[Path], *, top: int = 1, batch: int | None = None, workers: int = 0
) -> Iterator[ImagePredictions | Unreadable]:
    """Predictions in the order of the images; unreadable images of a batch come after its predictions.

    Args:
        top: the maximum number of predictions per image.
        batch: images per forward pass; the learner's default when None.
        workers: threads that read ahead.
    """
    if batch is not None and batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    learner.predict_batch = batch or learner.predict_batch
    files = FileSplit(tuple(images), np.zeros(len(images), dtype=np.int64))
    parts = np.array_split(np.arange(len(images)), range(learner.predict_batch, len(images), learner.predict_batch))
    for loaded in prefetched(files, parts, workers):
        if loaded.images:
            scores = learner.predict(loaded.images)
            found = ranked(scores, learner.classes, top, learner.probable(scores))
            if not all(found):
                raise ValueError("the learner has learnt nothing yet: it cannot predict")
            yield from (ImagePredictions(images[i], best) for i, best in zip(loaded.indices, found, strict=True))
        yield from loaded.unreadable
