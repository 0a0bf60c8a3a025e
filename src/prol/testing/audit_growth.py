"""Whether what a learner stores depends on how much it saw: measured by teaching a fresh one twice as much."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from prol.classes import Label
from prol.learner import Learner
from prol.testing.stream import count_values

CHUNK = 8
SIDE = 32
CLASSES = 4

Growth = Literal["stays", "classes", "rows in play", "once", "samples", "not met"]


@dataclass(frozen=True)
class Sizes:
    """Numbers in each tensor of a state, and in its JSON."""

    tensors: dict[str, int]
    values: int

    @classmethod
    def of(cls, learner: Learner) -> Sizes:
        tensors, meta = learner.state()
        names = len(meta["classes"])
        return cls({name: tensor.numel() for name, tensor in tensors.items()}, count_values(meta) - names)


@dataclass(frozen=True)
class Measured:
    """Sizes after some images, after twice and after four times as many; and after some of twice as many classes."""

    images: int
    some: Sizes
    twice: Sizes
    fourfold: Sizes
    more_classes: Sizes

    def growth(self, name: str) -> Growth:
        """What the size of a tensor depends on; one of a later task is judged by its kind."""
        name = self._met(name)
        counts = [sizes.tensors.get(name, 0) for sizes in (self.some, self.twice, self.fourfold)]
        if not any(counts):
            return "not met"
        if counts[0] < counts[1] < counts[2]:
            group = name.rpartition("/")[0]
            # Moments of the rows of a table that had a gradient: never more than the table has.
            return "rows in play" if f"{group}/rows" in self.fourfold.tensors and "adam" in name else "samples"
        if counts[0] != counts[2]:
            return "once" if not counts[0] or not counts[1] else "rows in play"
        return "stays" if self.more_classes.tensors.get(name, 0) == counts[0] else "classes"

    def values_grow(self) -> bool:
        """Whether the JSON part holds more with every image."""
        return self.some.values < self.twice.values < self.fourfold.values

    def _met(self, name: str) -> str:
        alike = re.sub(r"\d+", "#", name)
        known = self.fourfold.tensors
        return name if name in known else next((one for one in known if re.sub(r"\d+", "#", one) == alike), name)


def measure_growth(learner: Learner, images: int) -> Measured:
    """Teaches fresh learners like the given one, which is not touched."""
    names = [f"class {number}" for number in range(2 * CLASSES)]
    wide = teach_pictures(fresh(learner), names, images, seed=1)
    pupil, sizes = fresh(learner), []
    for seed, count in ((1, images), (2, images), (3, 2 * images)):
        sizes.append(Sizes.of(teach_pictures(pupil, names[:CLASSES], count, seed)))
    some, twice, fourfold = sizes
    return Measured(images, some, twice, fourfold, Sizes.of(wide))


def fresh(learner: Learner) -> Learner:
    """A learner of the same method, options, backbone and seed that has learnt nothing."""
    return type(learner)(learner.backbone, learner.options, learner.seed)


def teach_pictures(learner: Learner, names: Sequence[Label], count: int, seed: int) -> Learner:
    """Teaches so many pictures, the classes in turn, in chunks."""
    if not learner.classes and "classes_need_no_announcement" in learner.exemptions():
        learner.boundary(names)
    made = pictures(count, seed)
    for start in range(0, count, CHUNK):
        part = range(start, min(start + CHUNK, count))
        learner.learn(made[part.start : part.stop], [names[number % len(names)] for number in part])
    return learner


def pictures(count: int, seed: int) -> NDArray[np.uint8]:
    """Images that are unlike each other, uint8 `[count, SIDE, SIDE, 3]`: large patches of random colours, and noise."""
    random = np.random.default_rng(seed)
    patches = random.integers(0, 256, (count, 4, 4, 3)).repeat(SIDE // 4, axis=1).repeat(SIDE // 4, axis=2)
    noise = random.integers(-16, 17, patches.shape)
    made: NDArray[np.uint8] = np.clip(patches + noise, 0, 255).astype(np.uint8)
    return made
