"""The test images of a run, read when needed; features that learning never changes are computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prol.data.base import Loaded, Split, Unreadable
from prol.data.prefetch import prefetched
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
