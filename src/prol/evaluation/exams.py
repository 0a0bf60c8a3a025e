"""Evaluation: which images are predicted, when, and how predictions count. No task identity is ever given."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prol.data.base import Dataset, Loaded, Split, Unreadable
from prol.data.prefetch import prefetched
from prol.data.streams.stream import Stream
from prol.evaluation.clock import Cursor
from prol.evaluation.events import ChunkRead, Evaluated, Event, ImagesSkipped, PointEvaluated, Predicted, ShotEvaluated
from prol.evaluation.metrics import confidence_bins
from prol.learner import Learner

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Test images ready to be predicted, with their encodings where these are known."""

    indices: Indices
    images: list[NDArray[np.uint8]] | None
    encoded: Tensor | None
    unreadable: list[Unreadable] = field(default_factory=list)


class HeldOut:
    """One half of a data set that is classified again and again.

    Fixed features of a group (a task's test images) are computed together and in one order, whenever they are first
    needed: a run that was interrupted then computes the same bits.
    """

    def __init__(self, split: Split, groups: Sequence[Indices], learner: Learner, reuse: bool, workers: int) -> None:
        self.split, self.groups, self.learner, self.workers = split, groups, learner, workers
        self.reuse = reuse and learner.encoding != "none" and learner.frozen
        self._table: Tensor | None = None
        self._done: set[int] = set()
        self._unreadable: dict[int, Unreadable] = {}

    def batches(self, indices: Indices) -> Iterator[Batch]:
        """The requested images in order, as many at a time as the learner takes."""
        if self.reuse:
            self._compute(indices)
        if self.reuse and self.learner.encoding == "all":
            bad = [self._unreadable[i] for i in indices.tolist() if i in self._unreadable]
            good = np.array([i for i in indices.tolist() if i not in self._unreadable], dtype=np.int64)
            for start in range(0, max(len(good), 1), self.learner.predict_batch):
                chosen = good[start : start + self.learner.predict_batch]
                yield Batch(chosen, None, self._rows(chosen), bad if start == 0 else [])
            return
        for loaded in self._readable(indices):
            encoded = self._rows(loaded.indices) if self.reuse else None
            yield Batch(loaded.indices, loaded.images, encoded, loaded.unreadable)

    def _compute(self, indices: Indices) -> None:
        for number, group in enumerate(self.groups):
            if number in self._done or not np.isin(group, indices).any():
                continue
            for loaded in self._readable(group):
                self._unreadable |= {bad.index: bad for bad in loaded.unreadable}
                if not loaded.images:
                    continue
                features = self.learner.encode_images(loaded.images)
                if self._table is None:
                    self._table = features.new_zeros(len(self.split.labels), *features.shape[1:])
                self._table[torch.from_numpy(loaded.indices).to(features.device)] = features
            self._done.add(number)

    def _rows(self, indices: Indices) -> Tensor | None:
        if self._table is None:  # not one image could be read
            return torch.zeros(0)
        return self._table[torch.from_numpy(indices).to(self._table.device)]

    def _readable(self, indices: Indices) -> Iterator[Loaded]:
        """Images in batches of exactly the learner's size but for the last, also where some cannot be read.

        A learner whose predictions depend on the batch by definition then sees the same batches whatever is missing.
        """
        size = self.learner.predict_batch
        wanted = [indices[start : start + size] for start in range(0, len(indices), size)]
        images: list[Any] = []
        found, bad = np.zeros(0, dtype=np.int64), list[Unreadable]()
        for loaded in prefetched(self.split, wanted, self.workers):
            images, found = images + loaded.images, np.concatenate([found, loaded.indices])
            bad = bad + loaded.unreadable
            if len(images) >= size:
                yield Loaded(images[:size], found[:size], bad)
                images, found, bad = images[size:], found[size:], []
        if images or bad:
            yield Loaded(images, found, bad)


@dataclass(frozen=True)
class Measures:
    """What is measured besides the accuracy after each task.

    Args:
        points: how many equally spaced points of the stream at which all classes seen so far are tested (A_AUC).
        shots: after how many chunks of each task its own test images are predicted, from 0 on (learning-curve area).
        prequential: whether each chunk is predicted before it is learnt.
        reuse_features: whether features that learning never changes are computed once per run and test image. Switch
            it off where the time of a prediction matters.
    """

    points: int = 0
    shots: int | None = None
    prequential: bool = False
    reuse_features: bool = True

    def __post_init__(self) -> None:
        if self.points < 0:
            raise ValueError(f"points must be 0 or more, got {self.points}")
        if self.shots is not None and self.shots < 0:
            raise ValueError(f"shots must be 0 or more chunks, got {self.shots}")


@dataclass(frozen=True)
class Predictions:
    """Predictions of test images: the true class, whether the prediction is right, and its probability."""

    labels: NDArray[np.int64]
    right: NDArray[np.bool_]
    confidence: NDArray[np.float64]

    @property
    def counts(self) -> tuple[int, int]:
        return int(self.right.sum()), len(self.right)


class Examiner:
    """Evaluates the learner of one run; the counts so far are stored in the cursor."""

    def __init__(self, learner: Learner, dataset: Dataset, stream: Stream, measures: Measures, workers: int) -> None:
        self.learner, self.dataset, self.stream, self.measures = learner, dataset, stream, measures
        labels = dataset.test.labels
        self.test_images = [np.flatnonzero(np.isin(labels, classes)) for classes in stream.task_classes]
        self.held_out = HeldOut(dataset.test, self.test_images, learner, measures.reuse_features, workers)
        self.task_of_chunk = np.array([chunk.task for chunk in stream.chunks], dtype=np.int64)
        self.images_so_far = np.cumsum([len(chunk.indices) for chunk in stream.chunks], dtype=np.int64)
        self.points = equally_spaced(self.images_so_far, measures.points)

    def before_learning(self, loaded: Loaded, task: int, cursor: Cursor) -> Iterator[Event]:
        """Test, then train: the chunk is predicted before its labels are revealed."""
        if not self.measures.prequential or not loaded.images:
            return
        yield ChunkRead(cursor.chunks + 1)
        labels = self.dataset.train.labels[loaded.indices]
        right, _ = self._judge(self.learner.predict(loaded.images), labels)
        cursor.prequential[task][0] += int(right.sum())
        cursor.prequential[task][1] += len(right)
        yield Predicted(cursor.chunks + 1, int(right.sum()), len(right))

    def within_task(self, task: int, cursor: Cursor) -> Iterator[Event]:
        """The evaluations that are due at this point of the stream and not yet done."""
        shot = cursor.chunks - int(np.searchsorted(self.task_of_chunk, task))
        if self.measures.shots is not None and len(cursor.shots[task]) <= shot <= self.measures.shots:
            predictions = yield from self._predict(self.test_images[task], task, cursor)
            cursor.shots[task].append(list(predictions.counts))
            yield ShotEvaluated(task, shot, *predictions.counts)
        if len(cursor.points) < len(self.points) and self.points[len(cursor.points)] <= cursor.chunks:
            come = np.concatenate([chunk.indices for chunk in self.stream.chunks[: cursor.chunks]])
            classes = np.unique(self.dataset.train.labels[come])
            tested = np.flatnonzero(np.isin(self.dataset.test.labels, classes))
            predictions = yield from self._predict(tested, task, cursor)
            images = int(self.images_so_far[cursor.chunks - 1])
            cursor.points.append([images, len(classes), *predictions.counts])
            yield PointEvaluated(images, len(classes), *predictions.counts)

    def after_task(self, task: int, cursor: Cursor) -> Iterator[Event]:
        """The test images of each task so far, separately, and the accuracy of each class."""
        counts: list[tuple[int, int]] = []
        classes = np.zeros((len(self.dataset.class_names), 2), dtype=np.int64)
        bins = confidence_bins(np.zeros(0), np.zeros(0, dtype=bool))
        for tested in range(task + 1):
            predictions = yield from self._predict(self.test_images[tested], tested, cursor)
            counts.append(predictions.counts)
            np.add.at(
                classes, predictions.labels, np.stack([predictions.right, np.ones_like(predictions.right)], axis=1)
            )
            bins = bins + confidence_bins(predictions.confidence, predictions.right)
            yield Evaluated(task, tested, *predictions.counts)
        cursor.note_accuracy(task, counts)
        cursor.classes, cursor.confidence = classes.tolist(), bins.tolist()

    def _predict(self, indices: NDArray[np.int64], task: int, cursor: Cursor) -> Generator[Event, None, Predictions]:
        found = [Predictions(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=bool), np.zeros(0))]
        for batch in self.held_out.batches(indices):
            unheard = [image for image in batch.unreadable if image.index not in cursor.skipped_test]
            if unheard:
                cursor.skipped_test.extend(image.index for image in unheard)
                yield ImagesSkipped.of("test", task, unheard)
            if len(batch.indices):
                labels = self.dataset.test.labels[batch.indices]
                if batch.encoded is None:
                    scores = self.learner.predict(batch.images)
                else:
                    scores = self.learner.predict_encoded(batch.encoded, batch.images)
                found.append(Predictions(labels, *self._judge(scores, labels)))
        columns = zip(*((part.labels, part.right, part.confidence) for part in found), strict=True)
        return Predictions(*(np.concatenate(column) for column in columns))

    def _judge(self, scores: torch.Tensor, labels: NDArray[np.int64]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Which scores `[N, C]` are highest for the class of `labels` `[N]`, and how probable the highest is."""
        if 0 in scores.shape:
            return np.zeros(len(labels), dtype=bool), np.zeros(len(labels))
        confidence = self.learner.probable(scores).amax(dim=1)
        rows = scores.argmax(dim=1)  # rounding may make two probabilities equal where the scores are not
        named = [self.learner.classes[row] for row in rows.tolist()]
        right = [name == self.dataset.class_names[label] for name, label in zip(named, labels, strict=True)]
        return np.array(right, dtype=bool), confidence.nan_to_num(0.0).numpy()


def equally_spaced(images_so_far: NDArray[np.int64], points: int) -> list[int]:
    """After how many chunks the stream has passed 1, 2, ... of `points` equal parts; no chunk counts twice.

    >>> equally_spaced(np.array([10, 20, 30, 35]), 2)
    [2, 4]
    """
    if not points or not len(images_so_far):
        return []
    targets = np.arange(1, points + 1) * (images_so_far[-1] / points)
    chunks: list[int] = np.unique(np.searchsorted(images_so_far, targets - 1e-6) + 1).tolist()
    return chunks
