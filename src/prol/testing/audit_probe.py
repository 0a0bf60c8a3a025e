"""What a fresh learner shows of what is stored: whether it grows with what was seen, and holds an image learnt."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from prol.classes import Label
from prol.learner import Learner
from prol.testing.stream import count_values

CHUNK = 8
SIDE = 32
CLASSES = 4
SAME, NEARER = 0.99, 10
"""A stored row is that of one image where its cosine is at least so high, and so many times nearer to 1 than that of
the nearest row to an image never learnt."""
PROBED = 3
"""Images of each group at most whose own rows are looked for, since a copy of the learner is taught for each."""

Groups = dict[str, Tensor]
"""What is looked for, `[N, W]`: of "once", the only image of a class, of "several" of a class, and of some "never"
learnt."""

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
    pupil = type(learner)(learner.backbone, learner.options, learner.seed)
    pupil.enable_prequential(learner.prequential is not None)
    return pupil


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


@dataclass(frozen=True)
class Search:
    """The highest cosine of a row of one tensor to images of each group; None where none has a fitting width."""

    tensor: str | None = None
    once: float | None = None
    several: float | None = None
    never: float | None = None

    def found_once(self) -> bool:
        return _found(self.once, self.never)

    def found_several(self) -> bool:
        return _found(self.several, self.never)

    def separation(self) -> tuple[bool, bool, float]:
        """Whether learnt images were found, those of several first, and by how much they are nearer than others."""
        if self.once is None or self.several is None or self.never is None:
            return False, False, -2.0
        return self.found_several(), self.found_once(), max(self.once, self.several) - self.never


@dataclass(frozen=True)
class Probe:
    """What was searched for: the network's feature of an image, its pixels, and the row that it alone writes.

    Each in the tensor that separates most.
    """

    features: Search
    pixels: Search
    own_rows: Search

    def finds_a_class_of_one(self) -> bool:
        return any(search.found_once() for search in (self.features, self.pixels, self.own_rows))

    def finds_one_of_several(self) -> bool:
        return any(search.found_several() for search in (self.features, self.pixels, self.own_rows))


def probe(learner: Learner) -> Probe:
    """Teaches a fresh learner like the given one two chunks, one class of which has a single image; then searches."""
    pupil, made = fresh(learner), pictures(2 * CHUNK, seed=11)
    labels: list[Label] = ["once", *(f"class {number % 2}" for number in range(2 * CHUNK - 1))]
    if "classes_need_no_announcement" in pupil.exemptions():
        pupil.boundary(list(dict.fromkeys(labels)))
    for start in (0, CHUNK):
        pupil.learn(made[start : start + CHUNK], labels[start : start + CHUNK])
    groups = {"once": made[:1], "several": made[1:], "never": pictures(2 * CHUNK, seed=12)}
    tensors = {name: tensor for name, tensor in pupil.state()[0].items() if name != "random"}
    rows = {group: torch.from_numpy(images).flatten(1) for group, images in groups.items()}
    planes = {group: torch.from_numpy(images).permute(0, 3, 1, 2).flatten(1) for group, images in groups.items()}
    return Probe(
        search(tensors, {group: _features(pupil, images) for group, images in groups.items()}),
        max(search(tensors, rows, centred=True), search(tensors, planes, centred=True), key=Search.separation),
        _search_own_rows(pupil, tensors, groups),
    )


def search(tensors: Mapping[str, Tensor], wanted: Groups, centred: bool = False) -> Search:
    """The rows nearest to what is wanted, in that tensor of fitting width in which learnt images stand out most."""
    found = []
    for name, tensor in tensors.items():
        rows = fitting_rows(tensor, wanted["never"].shape[1])
        if rows is not None and len(rows):
            best = {group: highest_cosine(vectors, rows, centred) for group, vectors in wanted.items()}
            found.append(Search(name, **best))
    return max(found, key=Search.separation, default=Search())


def fitting_rows(tensor: Tensor, width: int) -> Tensor | None:
    """A tensor as rows `[R, width]` where its last axes have so many numbers together; None where they do not."""
    size = 1
    for length in reversed(tensor.shape):
        size *= length
        if size == width:
            return tensor.reshape(-1, width)
    return None


def highest_cosine(wanted: Tensor, rows: Tensor, centred: bool = False) -> float:
    """The highest absolute cosine of `wanted` `[N, W]` to `rows` `[R, W]`: a gradient is a negated feature.

    `centred` takes off the mean of each, as with pixels, which are all positive.
    """
    one, other = wanted.double(), rows.double()
    if centred:
        one, other = one - one.mean(1, keepdim=True), other - other.mean(1, keepdim=True)
    return float((F.normalize(one, dim=1) @ F.normalize(other, dim=1).T).abs().max())


def _found(learnt: float | None, never: float | None) -> bool:
    if learnt is None or never is None or learnt < SAME or never >= SAME:
        return False
    return NEARER * (1 - learnt) <= 1 - never


@torch.no_grad()
def _features(learner: Learner, images: NDArray[np.uint8]) -> Tensor:
    backbone = learner.backbone
    inputs = backbone.inputs(backbone.read(images), learner.preprocessing)
    return backbone.features(inputs).cpu()


def _search_own_rows(learner: Learner, tensors: Mapping[str, Tensor], groups: dict[str, NDArray[np.uint8]]) -> Search:
    """What an image writes when a copy of the learner is taught it as a new class, among the rows there were.

    So features are found whatever a method has made of them.
    """
    contents, classes = learner.contents(), len(learner.classes)
    tables = {
        name: tensor.flatten(1)
        for name, tensor in tensors.items()
        if contents.together(name) and contents.kind(name) != "optimiser moment" and len(tensor) == classes
        if tensor[0].numel() > 1
    }
    best: dict[str, dict[str, float]] = {name: {} for name in tables}
    for group, images in groups.items():
        written = [_taught_as_new(learner, image) for image in images[:PROBED]]
        for name, rows in tables.items():
            own = torch.cat([tensors[name][-1:].flatten(1) for tensors in written])
            # a table may be gone by now, as that of a head which a method drops after some steps
            best[name][group] = highest_cosine(own, rows) if len(own) and own.shape[1] == rows.shape[1] else -1.0
    return max((Search(name, **found) for name, found in best.items()), key=Search.separation, default=Search())


def _taught_as_new(learner: Learner, image: NDArray[np.uint8]) -> dict[str, Tensor]:
    copy = learner.clone()
    if "classes_need_no_announcement" in copy.exemptions():
        copy.boundary(["new"])
    copy.learn(image[None], ["new"])
    return copy.state()[0]
