"""What is timed: a learner with a given number of classes, and chunks of random images for it."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

from prol import registry
from prol.backbones import Backbone
from prol.bench.timing import Step
from prol.creation import create
from prol.learner import Learner
from prol.options import Count, Range, require_ranges

_CURRENT = 10
CHUNKS = 8
"""How many different chunks are repeated."""


@dataclass(frozen=True)
class MethodSpec:
    """A method with its options, as in `prol compare`."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        given = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.method}:{given}" if given else self.method

    def given(self, chunk: int) -> dict[str, Any]:
        """The options, with the chunk size if the method has that option."""
        has_chunk = any(option.name == "chunk" for option in dataclasses.fields(self._kind.Options))
        return ({"chunk": chunk} if has_chunk else {}) | dict(self.options)

    def resolved(self, chunk: int) -> Any:
        """The method's options object; invalid options are refused."""
        return self._kind.read_options(self.given(chunk))

    def learner(self, backbone: Backbone, chunk: int) -> Learner:
        return create(self.method, backbone, **self.given(chunk))

    @property
    def _kind(self) -> type[Learner]:
        return registry.method(self.method)


class RandomChunks:
    """A few chunks of random uint8 images `[N, side, side, 3]` with random labels, repeated endlessly."""

    def __init__(self, images: int, side: int, labels: Sequence[int], seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.all = [
            (
                random.integers(0, 256, (images, side, side, 3), dtype=np.uint8),
                random.choice(np.asarray(labels), images),
            )
            for _ in range(CHUNKS)
        ]
        self._next = cycle(self.all)

    def next(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return next(self._next)


@dataclass(frozen=True)
class Workload:
    """Classes and images of a measurement.

    Args:
        classes: total number. Most belong to an earlier task, announced and never learnt; the last 10, or half of them
            if there are fewer than 20, belong to the current task.
        first_task: whether all classes belong to one task instead, in which some methods train more.
        side: of the square input images, in pixels; the input size of the network by default.
    """

    classes: Annotated[int, Range(least=2, whole=True)] = 100
    first_task: bool = False
    side: Count | None = None

    def __post_init__(self) -> None:
        require_ranges(self)

    @property
    def current(self) -> range:
        """The classes of the current task."""
        return range(0 if self.first_task else self.classes - min(_CURRENT, self.classes // 2), self.classes)

    def announce(self, learner: Learner) -> None:
        """Announces all classes to a learner, so that none is new while it is timed."""
        if self.current.start:
            learner.boundary(np.arange(self.current.start))
        learner.boundary(np.asarray(self.current))

    def chunks(self, images: int, size: int) -> RandomChunks:
        """Chunks of the current task for a network with input size `size`."""
        return RandomChunks(images, self.side or size, self.current)


def training_step(learner: Learner, chunks: RandomChunks) -> Step:
    """One training step on the next chunk."""
    return lambda: learner.learn(*chunks.next())


def prediction_step(learner: Learner, chunks: RandomChunks) -> Step:
    """One prediction of the next chunk, as one batch.

    If predictions depend on the other images of a batch, the method's own batch size remains.
    """
    if "batch_independence" not in learner.exemptions():
        learner.predict_batch = len(chunks.all[0][0])
    return lambda: learner.predict(chunks.next()[0])


def free(device: torch.device) -> None:
    """Releases the GPU memory of earlier learners."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
