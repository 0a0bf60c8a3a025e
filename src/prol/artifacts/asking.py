"""Asking a learner about image files, a batch at a time."""

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
class Asked:
    """An image and the answers to it, best first."""

    image: Path
    answers: list[Answer]


def ask(
    learner: Learner, images: Sequence[Path], *, top: int = 1, batch: int | None = None, workers: int = 0
) -> Iterator[Asked | Unreadable]:
    """Answers in the order of the images; those of a batch that cannot be read come after its answers.

    Args:
        learner: who is asked.
        images: the files.
        top: how many answers to each, at most.
        batch: how many images go through the network together; as the learner has it when None.
        workers: threads that read ahead.
    """
    if batch is not None and batch < 1:
        raise ValueError(f"batch must be at least 1, got {batch}")
    learner.predict_batch = batch or learner.predict_batch
    files = FileSplit(tuple(images), np.zeros(len(images), dtype=np.int64))
    parts = np.array_split(np.arange(len(images)), range(learner.predict_batch, len(images), learner.predict_batch))
    for loaded in prefetched(files, parts, workers):
        if loaded.images:
            answers = ranked(learner.predict(loaded.images), learner.classes, top)
            if not all(answers):
                raise ValueError("the learner has learnt nothing yet: it has no answer")
            yield from (Asked(images[index], found) for index, found in zip(loaded.indices, answers, strict=True))
        yield from loaded.unreadable
