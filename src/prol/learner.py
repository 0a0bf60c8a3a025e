"""The learner interface: two verbs, and what a learner must be able to say about itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from prol import class_operations
from prol.backbones.upload import upload
from prol.class_rows import Contents
from prol.class_rows import Removal as Removal
from prol.labels import Label, read_labels, require_distinct
from prol.options import build_options
from prol.sums import Sums

if TYPE_CHECKING:
    from prol.backbones import Backbone, Pixels, Preprocessing

State = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and everything else as JSON."""

Mark = tuple[int, dict[str, Tensor | int], dict[str, Any]]
"""How many classes there were, tensors or lengths of tables by name, and everything else as JSON."""

SMALL_BATCH = 16
"""Images up to which a batch is never filled up."""


@dataclass(frozen=True)
class Amount:
    """How many numbers (or samples), and how many bytes they take."""

    count: int
    bytes: int

    @classmethod
    def of(cls, *tensors: Tensor) -> Amount:
        return cls(sum(t.numel() for t in tensors), sum(t.numel() * t.element_size() for t in tensors))


@dataclass(frozen=True)
class Footprint:
    """What a learner trains and keeps, besides the frozen backbone and the optimiser's moments."""

    trained_now: Amount
    parameters_stored: Amount
    statistics_stored: Amount
    samples_stored: Amount


class Learner(ABC):
    """Learns from chunks and answers at any moment.

    `learn` is one step; `predict` gives raw float32 scores `[N, C]`, one column for each of `classes`.
    A method implements the five underscored verbs at the end and names its `Options`.
    """

    name: ClassVar[str]
    family: ClassVar[str]
    citation: ClassVar[str]
    keeps_samples: ClassVar[bool] = False
    can_diverge: ClassVar[bool] = False
    """Whether a step may fail after new classes were met, as with a loss that is not finite."""
    only_grow: ClassVar[tuple[str, ...]] = ()
    """Tensors of the state with a row a class that do not change but grow when unseen classes arrive."""
    fixed: ClassVar[Literal["nothing", "part", "all"]] = "nothing"
    """How much of what `predict` computes from an image never changes; with "all" the image is not needed again."""
    default_backbone: ClassVar[str] = "builtin"
    """What `prol.create` and `prol run` open for it where nothing is said."""
    from_scratch: ClassVar[bool] = False
    """Whether it trains the whole network from weights it draws, so that the backbone brings none."""
    uses_tasks: ClassVar[bool] = False
    """Whether it divides what it learns into tasks, by a rule of its own where nobody tells it of them."""
    Options: ClassVar[type]

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed must be a whole number from 0 to {2**63 - 1}, got {seed}")
        self.backbone = backbone
        self.options = options
        self.seed = seed
        self.preprocessing: Preprocessing = backbone.preprocessing
        self.predict_batch = 256 if backbone.device.type == "cuda" else 64
        self.classes: list[Label] = []
        self.row_of: dict[Label, int] = {}
        self.random = torch.Generator().manual_seed(seed)
        self.loads = 0
        """How often a state was loaded: tensors may lie elsewhere since."""

    @classmethod
    def read_options(cls, values: Mapping[str, Any]) -> Any:
        """The method's resolved options from names and values, which may be texts as on a command line."""
        return build_options(cls.Options, values)

    def learn(self, images: Any, labels: Any) -> None:
        """One step on one chunk. A chunk that is refused, with a ValueError, changes nothing."""
        pixels, names = self.backbone.read(images), read_labels(labels)
        if not len(pixels):
            raise ValueError("the chunk is empty: learn needs at least one image")
        if len(pixels) != len(names):
            raise ValueError(f"{len(pixels)} images but {len(names)} labels: each image needs one label")
        new = [name for name in dict.fromkeys(names) if name not in self.row_of]
        random, before = self.random.get_state(), self._mark() if new and self.can_diverge else None
        try:
            if new:
                self._meet(new)
            self._learn_chunk(pixels, torch.tensor([self.row_of[name] for name in names]))
            if before is not None:
                self._settle()  # classes that came with a step that failed must go with it
        except Exception:  # a step that failed, such as one whose loss is not finite, leaves no trace
            self.random.set_state(random)
            if before is not None:
                self._go_back(before)
            raise

    @torch.no_grad()
    def predict(self, images: Any, fixed: Tensor | None = None) -> Tensor:
        """Raw scores `[N, C]`, columns in the order of `classes`; `[N, 0]` before any class is met or announced.

        `fixed` is what `fixed_features` gave for the same images, which may then be None where the method's own `fixed`
        is "all".
        """
        self._settle()
        pixels = [] if images is None and fixed is not None and self.fixed == "all" else self.backbone.read(images)
        count = len(pixels) if fixed is None else len(fixed)
        if fixed is not None and len(pixels) not in ((0, count) if self.fixed == "all" else (count,)):
            raise ValueError(f"{len(pixels)} images but fixed features of {count}: each image needs its own")
        if not self.classes or not count:
            return torch.zeros(count, len(self.classes))
        known = None if fixed is None else fixed.to(self.backbone.device)
        scores = []
        for start in range(0, count, self.predict_batch):
            part = slice(start, start + self.predict_batch)
            missing = self._missing(count - start, count)
            batch = _filled(pixels[part], missing)
            scores.append(self._scores(batch, None if known is None else _filled_rows(known[part], missing)))
        return torch.cat([part.float().cpu() for part in scores])[:count]

    @torch.no_grad()
    def familiarity(self, images: Any) -> Tensor | None:
        """How like what was learnt images are, float32 `[N]`, higher being more; None where the method cannot tell.

        Values compare only with others of the same moment: `prol.novelty` says what they mean.
        """
        self._settle()
        pixels = self.backbone.read(images)
        if not self.classes:
            return None
        return _joined([self._familiarity(batch, None) for batch in self._batches(pixels)], len(pixels))

    @torch.no_grad()
    def predict_with_familiarity(self, images: Any) -> tuple[Tensor, Tensor | None]:
        """What `predict` and `familiarity` give, in one pass through the network where they share it."""
        self._settle()
        pixels = self.backbone.read(images)
        if not self.classes or not len(pixels):
            return self.predict(images), self.familiarity(images)
        scores, found = [], []
        for batch in self._batches(pixels):
            shared = self._shared(batch)
            scores.append(self._scores(batch, shared).float().cpu())
            found.append(self._familiarity(batch, shared))
        return torch.cat(scores)[: len(pixels)], _joined(found, len(pixels))

    def _batches(self, pixels: Pixels) -> Iterator[Pixels]:
        count = len(pixels)
        for start in range(0, count, self.predict_batch):
            yield _filled(pixels[start : start + self.predict_batch], self._missing(count - start, count))

    def _missing(self, left: int, count: int) -> int:
        """How many images fill up a batch of which `left` are there: a GPU is fast at shapes it has met before."""
        if self.backbone.device.type != "cuda" or "batch_independence" in self.exemptions():
            return 0
        several = count > self.predict_batch
        return max(0, (self.predict_batch if several else whole_batch(left, self.predict_batch)) - left)

    @torch.no_grad()
    def fixed_features(self, images: Any) -> Tensor:
        """What `predict` computes from images and learning never changes, `[N, ...]`, to be handed to it again."""
        pixels = self.backbone.read(images)
        return torch.cat([self._fixed(batch) for batch in self._batches(pixels)])[: len(pixels)]

    def boundary(self, next_classes: Any = None) -> None:
        """A hint that a task begins; it may announce the task's classes, which fixes the order of their rows."""
        announced = [] if next_classes is None else read_labels(next_classes)
        require_distinct(announced)
        self._settle()
        self._begin_task([name for name in announced if name not in self.row_of])

    def state(self) -> State:
        """Everything needed to go on bit for bit: copies, independent of the learner."""
        self._settle()
        tensors, meta = self._state()
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        return tensors | {"random": self.random.get_state()}, {"classes": list(self.classes), "method": meta}

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Takes over what `state` returned, on this learner's device."""
        self.classes = list(meta["classes"])
        self.row_of = {name: row for row, name in enumerate(self.classes)}
        self.random.set_state(tensors["random"].cpu())
        self.loads += 1
        self._load_state({name: t.to(self.backbone.device, copy=True) for name, t in tensors.items()}, meta["method"])

    def clone(self) -> Self:
        """An independent learner in the same state."""
        twin = type(self)(self.backbone, self.options, self.seed)
        twin.load_state(*self.state())
        return twin

    def save(self, folder: str | Path, least_count: int = 0) -> None:
        """Writes `model.safetensors`, `meta.json` and a model card; `prol.load(folder)` goes on from there.

        Classes of fewer than `least_count` images are left out of it.
        """
        from prol.runs.saving import save

        save(self, Path(folder), least_count=least_count)

    def rename_class(self, old: Label, new: Label) -> None:
        """Gives a class another name. LookupError where there is no such class, ValueError where `new` is taken."""
        class_operations.rename_class(self, old, new)

    def merge_classes(self, source: Label, into: Label) -> Removal:
        """What was learnt of `source` becomes part of `into`, and its row goes."""
        return class_operations.merge_classes(self, source, into)

    def remove_class(self, name: Label) -> Removal:
        """Erases what is kept of a class alone; it may be met anew. The other classes keep their order."""
        return class_operations.remove_class(self, name)

    def unlearn(self, images: Any, labels: Any) -> Removal:
        """Takes images that were learnt out again, where sums allow it; classes without any left are removed.

        ValueError where the method cannot. Whether just these were learnt cannot be told, only whether as many were.
        """
        return class_operations.unlearn(self, images, labels)

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        """What the tensors of its state are, and what keeps a trace of the class in `row` if that is taken out."""
        return Contents({}, refusal=f"method {self.name} does not say which of its tensors have a row for each class")

    def added_up(self) -> Sums:
        """What it has learnt as sums for `prol.merge`; ValueError where those of two would not be those of one."""
        raise ValueError(
            f"{self.name} cannot be merged: what it learns from an image depends on what it learnt before, so that "
            "two learners do not add up to one"
        )

    def class_counts(self) -> Tensor | None:
        """How many images of each of `classes` it has learnt, `[C]`; None where the method does not keep count."""
        return None

    def exemptions(self) -> dict[str, str]:
        """Checks of `prol.check_learner` that cannot hold by definition, each with the reason."""
        return {}

    def needs_tasks(self) -> bool:
        """Whether it can only learn tasks that it is told of and whose classes never come again."""
        return False

    def report(self) -> Mapping[str, float]:
        """Losses and rates of the last step, by name; on a GPU they may be waited for when they are read."""
        return {}

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:  # noqa: ARG002
        """Parameters as the method's paper counted them, by what was counted; empty where it did not."""
        return {}

    def _settle(self) -> None:  # noqa: B027
        """Waits for steps that are still under way on the device, and raises what they have to tell."""

    def _mark(self) -> Mark:
        """What `_go_back` needs: copies, but of tables that only grow their lengths, so that its cost does not."""
        self._settle()
        tensors, meta = self._state()
        kept = {name: len(t) if name in self.only_grow else t.detach().clone() for name, t in tensors.items()}
        return len(self.classes), kept, meta

    def _go_back(self, mark: Mark) -> None:
        """To where `_mark` was called: classes that came since are gone.

        Rows of tables that only grow stay as they are now: a step that fails moves none.
        """
        count, kept, meta = mark
        now = self._state()[0]
        tensors = {name: t if isinstance(t, Tensor) else now[name][:t] for name, t in kept.items()}
        self.load_state(
            tensors | {"random": self.random.get_state()}, {"classes": self.classes[:count], "method": meta}
        )

    def _register(self, names: list[Label]) -> None:
        for name in names:
            self.row_of[name] = len(self.classes)
            self.classes.append(name)

    def _meet(self, names: list[Label]) -> None:
        """Unseen classes arrive in a chunk."""
        self._register(names)

    def _begin_task(self, names: list[Label]) -> None:
        """A task begins, told from outside; `names` are its classes not met before, if announced."""
        self._register(names)

    @abstractmethod
    def footprint(self) -> Footprint: ...

    def _learn_chunk(self, pixels: Pixels, rows: Tensor) -> None:
        """The same as `_learn`, with the class rows still in the host's memory."""
        self._learn(pixels, upload(rows, self.backbone.device))

    @abstractmethod
    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        """Learns from uint8 images and their class rows `[N]`.

        Images are one tensor `[N, 3, H, W]` or a list of `[3, H, W]`, in the caller's memory: what is kept is copied.
        """

    @abstractmethod
    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        """Scores `[N, C]` of one batch, `fixed` being what `_fixed` gave for it, if known; no random numbers."""

    def _unlearn(self, pixels: Pixels, rows: Tensor) -> tuple[str, ...]:  # noqa: ARG002
        """Takes images out of what it keeps; sentences on what has a trace of them still."""
        raise ValueError(f"{self.name} cannot unlearn images: what it trained on them cannot be told from the rest")

    def _fixed(self, pixels: Pixels) -> Tensor:  # noqa: ARG002
        raise ValueError(f"everything {self.name} computes from an image changes with learning: nothing to keep")

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor | None:  # noqa: ARG002
        """Familiarity `[N]` of one batch, each image for itself; `fixed` is what `_shared` gave for it, if known."""
        return None

    def _shared(self, pixels: Pixels) -> Tensor | None:
        """What `_scores` and `_familiarity` of one batch both start from, if there is such a thing."""
        return None if self.fixed == "nothing" else self._fixed(pixels)

    def _from_sums(self, sums: Sums, classes: int) -> State:  # noqa: ARG002
        """What `_load_state` takes, from sums of so many classes."""
        return sums.together(), dict(sums.rest[1])

    @abstractmethod
    def _state(self) -> State: ...

    @abstractmethod
    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None: ...


def whole_batch(count: int, most: int) -> int:
    """With how many images `count`, at most `most`, go through a GPU: few sizes, since each new one is compiled.

    Small batches, for which somebody may be waiting, go as they are.

    >>> [whole_batch(count, most=256) for count in (1, 10, 16, 17, 50, 200)]
    [1, 10, 16, 32, 64, 256]
    """
    return count if count <= SMALL_BATCH else min(most, 1 << (count - 1).bit_length())


def _filled(batch: Pixels, missing: int) -> Pixels:
    """The batch with its last member so many times more."""
    return _filled_rows(batch, missing) if isinstance(batch, Tensor) else batch + batch[-1:] * missing


def _joined(parts: list[Tensor | None], count: int) -> Tensor | None:
    """Familiarity of the first `count` images of all batches; None where one batch has none."""
    known = [part.float().cpu() for part in parts if part is not None]
    return None if len(known) < len(parts) else torch.cat([torch.zeros(0), *known])[:count]


def _filled_rows(rows: Tensor, missing: int) -> Tensor:
    return torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) if missing and len(rows) else rows
