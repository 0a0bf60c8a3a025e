"""What is timed: a learner that knows so many classes, and chunks of made-up images for it."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from prol import registry
from prol.backbones import Backbone
from prol.bench.timing import Step
from prol.creation import create
from prol.learner import Learner

_CURRENT = 10
_SETS = 8


@dataclass(frozen=True)
class Subject:
    """A method with its options, as `prol compare` writes them."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        given = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.method}:{given}" if given else self.method

    def given(self, chunk: int) -> dict[str, Any]:
        """The options with the chunk size, where the method has a use for it."""
        knows_chunk = any(option.name == "chunk" for option in dataclasses.fields(self._kind.Options))
        return ({"chunk": chunk} if knows_chunk else {}) | dict(self.options)

    def resolved(self, chunk: int) -> Any:
        """The method's own options object; mistakes in the options are told."""
        return self._kind.read_options(self.given(chunk))

    def learner(self, backbone: Backbone, chunk: int) -> Learner:
        return create(self.method, backbone, **self.given(chunk))

    @property
    def _kind(self) -> type[Learner]:
        return registry.method(self.method)


class Feed:
    """Chunks of random uint8 images `[N, side, side, 3]` with random labels, in memory; a few, over and over."""

    def __init__(self, images: int, side: int, labels: Sequence[int], seed: int = 0) -> None:
        random = np.random.default_rng(seed)
        self.chunks = [
            (
                random.integers(0, 256, (images, side, side, 3), dtype=np.uint8),
                random.choice(np.asarray(labels), images),
            )
            for _ in range(_SETS)
        ]
        self._next = cycle(self.chunks)

    def chunk(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return next(self._next)


@dataclass(frozen=True)
class Load:
    """What a learner has to bear.

    Args:
        classes: how many it knows: most are an earlier task's, announced and never learnt; the last 10, or half of them
            where they are fewer than 20, are the current one's.
        first_task: all classes are of one task instead, in which some methods train more.
        side: of the square images that come in, in pixels; the network's own by default.
    """

    classes: int = 100
    first_task: bool = False
    side: int | None = None

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"at least 2 classes are needed, got {self.classes}")
        if self.side is not None and self.side < 1:
            raise ValueError(f"side must be at least 1, got {self.side}")

    @property
    def current(self) -> range:
        """The classes of the task being learnt."""
        return range(0 if self.first_task else self.classes - min(_CURRENT, self.classes // 2), self.classes)

    def announce(self, learner: Learner) -> None:
        """Tells a learner of all classes, so that none is new while it is timed."""
        if self.current.start:
            learner.boundary(np.arange(self.current.start))
        learner.boundary(np.asarray(self.current))

    def feed(self, images: int, size: int) -> Feed:
        """Chunks of the current task for a network that takes images of `size`."""
        return Feed(images, self.side or size, self.current)


def step_of(learner: Learner, feed: Feed) -> Step:
    """One training step on the feed's next chunk."""
    return lambda: learner.learn(*feed.chunk())


def answer_of(learner: Learner, feed: Feed) -> Step:
    """One prediction of the feed's next chunk, whose images go through the network together.

    Where an answer depends on what is asked together, the method's own batches stay.
    """
    if "batch_independence" not in learner.exemptions():
        learner.predict_batch = len(feed.chunks[0][0])
    return lambda: learner.predict(feed.chunk()[0])


def free(device: torch.device) -> None:
    """Gives back what earlier learners held on a GPU."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
