"""The learner: two verbs, `learn` and `predict`, and what every method gets from declaring its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

from prol import classes, merging, prediction, registry
from prol.backbones.network import Network
from prol.backbones.preprocess import evaluation_input, training_input
from prol.backbones.upload import upload
from prol.backbones.vit import ViT, not_plain
from prol.classes import AUGMENTED, Contents
from prol.classes import Removal as Removal
from prol.engine.captured import FrozenPass
from prol.labels import Label, read_labels, require_distinct
from prol.options import build_options
from prol.state import State as State
from prol.tables import Amount as Amount

if TYPE_CHECKING:
    from prol.backbones.base import Backbone
    from prol.backbones.images import Pixels
    from prol.backbones.preprocess import Preprocessing
    from prol.engine.tasks import TaskClock
    from prol.merging import Sums

T = TypeVar("T")
SavedState = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and everything else as JSON."""


@dataclass(frozen=True)
class Footprint:
    """What a learner trains and stores, besides the frozen backbone and the optimiser's moments."""

    trained_now: Amount
    parameters_stored: Amount
    statistics_stored: Amount
    samples_stored: Amount


class Learner:
    """Learns from chunks and predicts at any moment.

    A method names its `Options` and implements `build`, which declares what it stores, `update` and `score`. Growth,
    saving, rollback, class operations, merging and footprint follow from the declaration (`prol.state`).
    """

    name: ClassVar[str]
    family: ClassVar[str]
    citation: ClassVar[str]
    Options: ClassVar[type]
    keeps_samples: ClassVar[bool] = False
    additive: ClassVar[bool] = False
    """Whether what it learns are sums, so that learners can be merged."""
    encoding: ClassVar[Literal["none", "query", "all"]] = "all"
    """What `encode` computes: all that scores need, a part of it (the image is needed again), or nothing."""
    frozen: bool = True
    """Whether learning leaves encodings as they are, so that they may be stored and used again."""
    default_backbone: ClassVar[str] = "builtin"
    """What `prol.create` and `prol run` open unless a backbone is named."""
    from_scratch: ClassVar[bool] = False
    """Whether it trains the whole network from weights it draws, so that the backbone brings none."""
    needs_blocks: ClassVar[bool] = False
    """Whether it changes what happens inside a ViT's blocks, as prompts and adapters do: other networks are refused."""
    uses_tasks: ClassVar[bool] = False
    """Whether it divides the stream into tasks, by its own rule where no boundaries are given."""

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed must be a whole number from 0 to {2**63 - 1}, got {seed}")
        if self.needs_blocks:
            _require_blocks(self.name, backbone)
        self.backbone, self.options, self.seed = backbone, options, seed
        self.preprocessing: Preprocessing = backbone.preprocessing
        if hasattr(options, "input_range"):
            self.preprocessing = backbone.preprocessing.overridden(options.input_range, options.crop_pct)
        self.predict_batch = 256 if backbone.device.type == "cuda" else 64
        self.classes: list[Label] = []
        self.row_of: dict[Label, int] = {}
        self.random = torch.Generator().manual_seed(seed)
        self.clock: TaskClock | None = None
        self.look: Callable[[Tensor], Tensor] = FrozenPass(backbone.features, backbone.acceleration.captured)
        self.stored = State(backbone.device)
        self._latest: dict[str, Any] = {}
        self.build(self.stored)
        if getattr(options, "augment", "none") != "none":
            self.stored.trace(removed=AUGMENTED)

    @classmethod
    def read_options(cls, values: Mapping[str, Any]) -> Any:
        """The method's resolved options from names and values, which may be texts as on a command line."""
        return build_options(cls.Options, values)

    # What a method implements.

    def build(self, state: State) -> None:
        """Declares everything that is stored."""

    def encode(self, inputs: Tensor) -> Tensor:
        """What scores are computed from, `[B, ...]`, given inputs `[B, 3, size, size]`."""
        return self.look(inputs)

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        """Learns from encoded images `[B, ...]` of the class rows `[B]`; refuses them before it changes anything."""
        raise NotImplementedError

    def score(self, encoded: Tensor) -> Tensor:
        """Scores `[B, C]`, -inf for a class of which nothing was learnt; draws no random numbers."""
        raise NotImplementedError

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:  # noqa: ARG002
        """How much each encoded image is like those learnt, `[B]`; None where the method cannot say."""
        return None

    def subtract(self, encoded: Tensor, rows: Tensor) -> Sequence[str]:  # noqa: ARG002
        """Subtracts encoded images of class rows `[B]` from the sums they are in; returns what still holds a trace."""
        raise ValueError(
            f"{self.name} cannot unlearn images: what it learnt from them cannot be separated from the rest"
        )

    def end_task(self) -> None:
        """The current task ends, if there is one; call `stored.overwrites` before overwriting what is stored."""

    def start_task(self) -> None:
        """A task has begun; `clock` says which."""

    def flush(self) -> None:
        """Waits for updates that are still running on the device, and raises their errors."""

    # Learning.

    def learn(self, images: Any, labels: Any) -> None:
        """One update on one chunk. A chunk that is refused, with a ValueError, changes nothing."""
        pixels, names = self.backbone.read(images), read_labels(labels)
        if not len(pixels):
            raise ValueError("the chunk is empty: learn needs at least one image")
        if len(pixels) != len(names):
            raise ValueError(f"{len(pixels)} images but {len(names)} labels: each image needs one label")
        new = [name for name in dict.fromkeys(names) if name not in self.row_of]
        random = self.random.get_state()
        if new:
            self.flush()
        record = self.stored.record() if new else None
        try:
            if new:
                self.meet(new)
            self.learn_pixels(pixels, torch.tensor([self.row_of[name] for name in names]))
            if record is not None:
                self.flush()  # classes that came with an update that failed must go with it
        except Exception:
            self.random.set_state(random)
            if record is not None:
                self._name_classes(self.classes[: record.classes])
                self.stored.roll_back(record)
            raise
        finally:
            self.stored.close()
            self._latest.clear()

    @torch.no_grad()
    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        """Learns from images in the caller's memory, of which only copies may be stored, and class rows `[B]` there."""
        rows = upload(rows, self.backbone.device)
        inputs = training_input(pixels, self.preprocessing, self.backbone, self.options.augment, self.random)
        self.update(self.encode(inputs), rows)

    def boundary(self, next_classes: Any = None) -> None:
        """A hint that a task begins; it may announce the task's classes, which fixes the order of their rows."""
        announced = [] if next_classes is None else read_labels(next_classes)
        require_distinct(announced)
        self.flush()
        self.begin_task([name for name in announced if name not in self.row_of])
        self._latest.clear()

    def meet(self, names: list[Label]) -> None:
        """Unseen classes arrive in a chunk."""
        if self.clock is not None and self.clock.begins_with_unseen_class(len(self.classes), soft=False):
            self._start_task()
        self.register(names)

    def begin_task(self, names: list[Label]) -> None:
        """A boundary was given; `names` are its classes that are not known yet, if announced."""
        if self.clock is not None and self.clock.begins_at_boundary(len(self.classes)):
            self._start_task()
        self.register(names)

    def _start_task(self) -> None:
        assert self.clock is not None
        self.end_task()
        self.clock.begin(len(self.classes))
        self.start_task()

    def register(self, names: list[Label]) -> None:
        for name in names:
            self.row_of[name] = len(self.classes)
            self.classes.append(name)
        self.stored.add_classes(len(names))

    def _name_classes(self, names: Sequence[Label]) -> None:
        self.classes = list(names)
        self.row_of = {name: row for row, name in enumerate(self.classes)}

    # Predicting.

    @torch.no_grad()
    def predict(self, images: Any) -> Tensor:
        """Scores, float32 `[N, C]`, one column for each of `classes`; `[N, 0]` before any class is known."""
        return prediction.predict(self, self.backbone.read(images))

    @torch.no_grad()
    def familiarity(self, images: Any) -> Tensor | None:
        """How much images are like those learnt, float32 `[N]`; None where the method cannot say.

        Values compare only with others of the same moment: `prol.novelty` calibrates them.
        """
        return prediction.familiarity(self, self.backbone.read(images))

    @torch.no_grad()
    def predict_with_familiarity(self, images: Any) -> tuple[Tensor, Tensor | None]:
        """What `predict` and `familiarity` return, from one encoding."""
        return prediction.predict_with_familiarity(self, self.backbone.read(images))

    @torch.no_grad()
    def encode_images(self, images: Any) -> Tensor:
        """What `predict_encoded` takes, `[N, ...]`; valid for as long as `frozen` is true."""
        return prediction.encode(self, self.backbone.read(images))

    @torch.no_grad()
    def predict_encoded(self, encoded: Tensor, images: Any = None) -> Tensor:
        """What `predict` returns, from what `encode_images` returned; images are needed where `encoding` is "query"."""
        pixels: Pixels = [] if self.encoding == "all" and images is None else self.backbone.read(images)
        if len(pixels) != len(encoded) and (len(pixels) or self.encoding != "all"):
            raise ValueError(f"{len(pixels)} images but {len(encoded)} encodings: each image needs its own")
        return prediction.predict(self, pixels, encoded.to(self.backbone.device))

    def encoded(self, pixels: Pixels) -> Tensor:
        """One batch of images, encoded."""
        return self.encode(self.evaluation_input(pixels))

    def evaluation_input(self, pixels: Pixels) -> Tensor:
        return evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        """Scores `[B, C]` of one batch, from its encoding where that is known."""
        return self.score(self.encoded(pixels) if encoded is None else encoded)

    def familiarity_of(self, pixels: Pixels, encoded: Tensor | None) -> Tensor | None:
        """Familiarity `[B]` of one batch, from its encoding where that is known."""
        if self.encoding == "none":
            return None
        return self.score_familiarity(self.encoded(pixels) if encoded is None else encoded)

    def latest(self, solve: Callable[[], T]) -> T:
        """What `solve` returns for the state as it is, computed once until the state changes."""
        if solve.__name__ not in self._latest:
            self._latest[solve.__name__] = solve()
        found: T = self._latest[solve.__name__]
        return found

    # Saving, and changing what was learnt.

    def state(self) -> SavedState:
        """Everything needed to resume bit for bit: copies, independent of the learner."""
        self.flush()
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in self.stored.saved_tensors().items()}
        meta = {"classes": list(self.classes), "method": self.stored.saved_values()}
        return tensors | {"random": self.random.get_state()}, meta

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Takes over what `state` returned, on this learner's device."""
        self._name_classes(meta["classes"])
        self._latest.clear()
        self.random.set_state(tensors["random"].cpu())
        here = {name: t.to(self.backbone.device, copy=True) for name, t in tensors.items() if name != "random"}
        self.stored.load(here, meta["method"], len(self.classes))

    def clone(self) -> Self:
        """An independent learner in the same state."""
        twin = type(self)(self.backbone, self.options, self.seed)
        twin.load_state(*self.state())
        return twin

    def save(self, folder: str | Path, least_count: int = 0) -> None:
        """Writes `model.safetensors`, `meta.json` and a model card; `prol.load(folder)` resumes from there.

        Classes of fewer than `least_count` images are omitted.
        """
        import prol

        prol.save(self, folder, least_count)

    def rename_class(self, old: Label, new: Label) -> None:
        """Gives a class another name. LookupError where there is no such class, ValueError where `new` is taken."""
        classes.rename_class(self, old, new)

    def merge_classes(self, source: Label, into: Label) -> Removal:
        """What was learnt of `source` becomes part of `into`, and its row goes."""
        return classes.merge_classes(self, source, into)

    def remove_class(self, name: Label) -> Removal:
        """Erases what is stored of a class alone; it may be learnt anew. The other classes keep their order."""
        return classes.remove_class(self, name)

    def unlearn(self, images: Any, labels: Any) -> Removal:
        """Takes images that were learnt out again, where sums allow it; classes without any left are removed.

        ValueError where the method cannot. Only the number of images is checked, not whether just these were learnt.
        """
        return classes.unlearn(self, images, labels)

    def contents(self, row: int | None = None) -> Contents:
        """What the saved tensors are, and what holds a trace of the class in `row` if that is removed."""
        return self.stored.contents(row)

    def added_up(self) -> Sums:
        """What it has learnt as sums, for `prol.merge`; ValueError where those of two would not be those of one."""
        return merging.sums_of(self)

    def from_sums(self, sums: Sums, classes: int) -> SavedState:  # noqa: ARG002
        """Tensors and values for `load_state`, from sums of so many classes."""
        return sums.together(), sums.values()

    # Describing.

    def class_counts(self) -> Tensor | None:
        """How many images of each of `classes` it has learnt, `[C]`; None where the method does not count."""
        return self.stored.counts()

    def footprint(self) -> Footprint:
        """What it trains and stores; a solved head counts as parameters though it is not saved."""
        parameters = Amount.of(*self.stored.of_kind("parameter"), *self.solved_tensors())
        statistics = Amount.of(*self.stored.of_kind("statistic"))
        return Footprint(Amount.of(*self.trained_tensors()), parameters, statistics, self.samples_stored())

    def trained_tensors(self) -> Sequence[Tensor]:
        """What an update trains now."""
        return ()

    def solved_tensors(self) -> Sequence[Tensor]:
        """Shapes (on the device "meta") of what is solved for predictions."""
        return ()

    def samples_stored(self) -> Amount:
        return Amount(0, 0)

    def exemptions(self) -> dict[str, str]:
        """Checks of `prol.check_learner` that cannot hold by definition, each with the reason."""
        return {}

    def needs_tasks(self) -> bool:
        """Whether it can only learn tasks with given boundaries, whose classes never come again."""
        return False

    def report(self) -> Mapping[str, float]:
        """Losses and rates of the last update, by name; on a GPU reading one may wait for it."""
        return {}

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:  # noqa: ARG002
        """Parameters as the method's paper counted them, by what was counted; empty where it did not."""
        return {}


def _require_blocks(method: str, backbone: Backbone) -> None:
    """Refuses a network whose blocks take no prompts, and names the methods that need feature vectors alone."""
    if not isinstance(backbone, Network) or isinstance(backbone, ViT):
        return
    known, _ = registry.load_all("methods")
    others = [name for name, kind in known.items() if not kind.needs_blocks and not kind.from_scratch]
    raise ValueError(
        f"method {method} works inside the blocks of a plain ViT, and backbone {backbone.name!r} is none: "
        f"{not_plain(backbone.model)}; methods that work with it: {', '.join(others)}"
    )
