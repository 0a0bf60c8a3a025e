"""`prol.stream`: chunks of images and labels from anywhere, with progress; and learning a whole folder."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prol.classes import Label, read_labels, require_label_each
from prol.verbs.progress import Progress
from prol.verbs.source import Batch, Source, as_uint8, image_id, open_source

if TYPE_CHECKING:
    from prol.learner import Learner
    from prol.verbs.evaluation import Evaluation

TEST_SHARE = 0.2
_TEST_BATCH = 64
_PREDICTING_SHARE = 0.2
"""Share of the time of `learn_folder` that may go into the running accuracy."""
_RECENT = 100


class ImageStream:
    """Images and labels, chunk by chunk, each image once in a pass.

    Iterating gives lists `(images, labels)` for `learn`, and shows progress on standard error. `status` is a text
    that is shown beside it; set it while iterating. `ids` has the paths of the images of the chunk, or their numbers
    in the source; None for batches of an iterable. Test images are held out: `learner.evaluate(stream)` uses them.
    """

    def __init__(
        self, opened: Source | Iterable[Any], chunk: int, seed: int, test_share: float, progress: bool
    ) -> None:
        self.opened, self.chunk, self.seed, self.test_share, self.progress = opened, chunk, seed, test_share, progress
        self.status = ""
        self.ids: list[Label] | None = None
        self._kept: Batch = ([], [])

    def __repr__(self) -> str:
        if not isinstance(self.opened, Source):
            return f"<stream of batches, in chunks of {self.chunk}>"
        images, held = len(self.opened.train.labels), len(self.opened.test.labels)
        return (
            f"<stream {self.opened.name}: {_counted(images, 'image')} of {_counted(len(self.opened.classes), 'class')} "
            f"in {_counted(len(self), 'chunk')} of {self.chunk}, {_counted(held, 'image')} held out>"
        )

    def __len__(self) -> int:
        """Chunks of a pass. TypeError for batches of an iterable: how many come is not known."""
        if not isinstance(self.opened, Source):
            raise TypeError("a stream of batches has no length")
        return -(-len(self.opened.train.labels) // self.chunk)

    def __iter__(self) -> Iterator[Batch]:
        total, learnt = None, 0
        if isinstance(self.opened, Source):
            total = len(self.opened.train.labels)
            order = np.random.default_rng(self.seed).permutation(total)
            chunks = self._identified(self.opened, order)
        else:
            chunks = self._rechunked(self.opened)
        with Progress(repr(self)[1:-1], total, self.progress) as shown:
            for images, labels in chunks:
                yield images, labels
                learnt += len(images)
                shown.update(learnt, self.status)
        if total and not learnt:
            raise ValueError(f"none of the {_counted(total, 'image')} could be read: are they images?")

    def _identified(self, source: Source, order: NDArray[np.int64]) -> Iterator[Batch]:
        for images, places in source.read(source.train, order, self.chunk):
            self.ids = [image_id(source.train, place) for place in places.tolist()]
            yield images, [source.classes[number] for number in source.train.labels[places]]

    def held_out(self) -> Iterator[Batch]:
        """The images to test on; of an iterable, those held out in the last pass."""
        if isinstance(self.opened, Source):
            rows = np.arange(len(self.opened.test.labels))
            yield from self.opened.batches(self.opened.test, rows, _TEST_BATCH)
        elif self._kept[0]:
            yield self._kept

    def _rechunked(self, batches: Iterable[Any]) -> Iterator[Batch]:
        """Chunks of the usual size, whatever the size of the batches; what is held out stays in memory."""
        random = np.random.default_rng(self.seed)
        images, labels, self._kept = list[Any](), list[Label](), ([], [])
        for pair in batches:
            for image, label in zip(*read_batch(pair), strict=True):
                held = random.random() < self.test_share
                for values, value in zip(self._kept if held else (images, labels), (image, label), strict=True):
                    values.append(value)
                if len(images) == self.chunk:
                    yield images, labels
                    images, labels = [], []
        if images:
            yield images, labels


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing if number == 1 else f'{thing}es' if thing.endswith('s') else f'{thing}s'}"


def read_batch(pair: Any) -> Batch:
    """One batch of an iterable, such as a DataLoader."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ValueError(f"a batch must be a pair (images, labels), got a {type(pair).__name__}")
    images, labels = [as_uint8(image) for image in pair[0]], read_labels(pair[1])
    require_label_each(len(images), labels, "a batch has ")
    return images, labels


def stream(
    source: Any, chunk: int = 10, seed: int = 0, *, test_share: float | None = None, progress: bool = True
) -> ImageStream:
    """Chunks of images and labels, in an order drawn by the seed.

    Args:
        source: a folder of `CLASS/*.jpg` or of `train/CLASS/*.jpg` and `test/CLASS/*.jpg`; a parquet file, or a folder
            or "hub:OWNER/NAME" of them; a name that `prol.list_datasets()` lists; a pair (images, labels) in memory; a
            data set of prol or torch; or an iterable of batches (images, labels), such as a DataLoader, whose order
            stays.
        chunk: how many images come together.
        seed: draws the order, and the test images.
        test_share: the fraction of each class that is held out for testing where the source has no test images: a fifth
            by default. Of an iterable nothing is by default: held-out images stay in memory.
        progress: whether progress is shown, on standard error.

    >>> import numpy as np, prol
    >>> images = np.zeros((10, 8, 8, 3), np.uint8)
    >>> pets = prol.stream((images, ["cat", "dog"] * 5), chunk=4, progress=False)
    >>> pets
    <stream images: 8 images of 2 classes in 2 chunks of 4, 2 images held out>
    >>> [len(labels) for images, labels in pets]
    [4, 4]
    """
    for name, value, least in (("chunk", chunk, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    opened = open_source(source, seed, TEST_SHARE if test_share is None else test_share)
    given = test_share or 0.0
    if not 0 <= given < 1:
        raise ValueError(f"test_share must be at least 0 and below 1, got {given}")
    return ImageStream(opened, chunk, seed, given, progress)


def learn_folder(
    learner: Learner,
    path: str | Path,
    chunk: int = 10,
    seed: int = 0,
    *,
    test_share: float = TEST_SHARE,
    progress: bool = True,
    label_issues: bool = False,
) -> Evaluation | None:
    """Learns a folder of images in one pass, and returns how well it predicts those held out; None if none are.

    Args:
        learner: what learns.
        path: a folder of `CLASS/*.jpg`, or of `train/CLASS/*.jpg` and `test/CLASS/*.jpg`.
        chunk: how many images are learnt together.
        seed: draws the order, and the test images.
        test_share: the fraction of each class that is held out, if the folder has no `test/`.
        progress: whether progress is shown, with the accuracy of predictions for images that are about to be learnt.
        label_issues: whether the paths of images that contradict their labels are recorded, for
            `learner.label_issues()`, and printed on standard error if progress is shown.
    """
    if label_issues and (learner.prequential is None or not learner.prequential.capacity):
        learner.enable_prequential(record_ids=True)
    recorded = learner.prequential is not None and learner.prequential.capacity > 0
    photos = stream(Path(os.fspath(path)), chunk, seed, test_share=test_share, progress=progress)
    right: deque[bool] = deque(maxlen=_RECENT)
    began, spent = time.perf_counter(), 0.0
    for images, labels in photos:
        now = time.perf_counter()
        if progress and learner.classes and spent <= _PREDICTING_SHARE * (now - began):
            rows = learner.predict(images).argmax(1).tolist()
            right.extend(learner.classes[row] == label for row, label in zip(rows, labels, strict=True))
            spent += time.perf_counter() - now
            photos.status = f"{np.mean(right):.0%} of {len(right)} right before they were learnt"
        learner.learn(images, labels, photos.ids if recorded else None)
    if label_issues and progress:
        print(learner.label_issues(), file=sys.stderr)
    return learner.evaluate(photos) if next(photos.held_out(), None) else None
