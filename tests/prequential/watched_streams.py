"""A shuffled stream of coloured images, one of which has a wrong label, and learners that record it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import prol
from evaluation.small_data import CLASSES, coloured_images
from golden_files import tiny_vit
from prol.learner import Learner

PER_CLASS = 16


def shuffled(seed: int = 0) -> tuple[list[NDArray[np.uint8]], list[str]]:
    """Coloured images, of which number 60 has a wrong label; it comes when 10 images of each class are known."""
    split = coloured_images(PER_CLASS, seed)
    random, rows = np.random.default_rng(seed), np.arange(len(split.labels)).reshape(len(CLASSES), PER_CLASS)
    order = np.concatenate([random.permutation(column) for column in rows.T])
    labels = [CLASSES[label] for label in split.labels[order]]
    labels[60] = CLASSES[(CLASSES.index(labels[60]) + 1) % len(CLASSES)]
    return list(split.images[order]), labels


def learnt(method: str = "ncm", record_ids: bool | int = True, first: int = 0, last: int = 80) -> Learner:
    learner = prol.create(method, tiny_vit())
    learner.enable_prequential(record_ids=record_ids)
    return further(learner, first, last)


def further(learner: Learner, first: int, last: int) -> Learner:
    images, labels = shuffled()
    for start in range(first, last, 5):
        stop = min(start + 5, last)
        ids = [f"{place}.png" for place in range(start, stop)]
        recorded = learner.prequential is not None and learner.prequential.capacity
        learner.learn(images[start:stop], labels[start:stop], ids if recorded else None)
    return learner
