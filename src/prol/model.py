"""What every method gets from declaring its state: saving, copies, class operations and footprint."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast

import torch
from torch import Tensor

from prol.calibration import Calibration
from prol.classes import (
    AUGMENTED,
    ELSEWHERE,
    Contents,
    Label,
    Removal,
    Tensors,
    UnknownClass,
    read_labels,
    require_label_each,
    require_text,
    with_rows_together,
    without_row,
)
from prol.options import build_options
from prol.prequential.statistics import RECORDED, Prequential
from prol.state import State
from prol.tables import Amount, Record
from prol.undo import FAILED, UNDONE, UndoRecord

if TYPE_CHECKING:
    from prol.backbones.base import Backbone, Pixels
    from prol.learner import Learner

T = TypeVar("T")
SavedState = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors by name, and everything else as JSON."""
_MOST_NAMED = 8
_DOCUMENTED = (
    *("backbone", "classes", "name", "options", "seed", "learn", "learn_folder", "predict", "classify", "evaluate"),
    *("boundary", "familiarity", "predict_with_familiarity", "encode_images", "predict_encoded", "state"),
    *("load_state", "clone", "save", "rename_class", "merge_classes", "remove_class", "unlearn", "enable_undo"),
    *("undo", "enable_prequential", "label_issues", "learning_curve", "class_counts", "footprint", "report"),
    "needs_tasks",
)


@dataclass(frozen=True)
class Footprint:
    """What a learner trains and stores, besides the frozen backbone and the optimiser's moments."""

    trained_now: Amount
    parameters_stored: Amount
    statistics_stored: Amount
    samples_stored: Amount


class Model:
    """The classes that are known, and what was learnt of them: the state that `build` declares."""

    name: ClassVar[str]
    family: ClassVar[str]
    citation: ClassVar[str]
    Options: ClassVar[type]
    keeps_samples: ClassVar[bool] = False
    default_backbone: ClassVar[str] = "builtin"
    """What `prol.create` and `prol run` open unless a backbone is named."""
    from_scratch: ClassVar[bool] = False
    """Whether it trains the whole network from weights it draws, so that the backbone brings none."""
    needs_blocks: ClassVar[bool] = False
    """Whether it changes what happens inside a ViT's blocks, as prompts and adapters do: other networks are refused."""

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed must be a whole number from 0 to {2**63 - 1}, got {seed}")
        self.backbone, self.options, self.seed = backbone, options, seed
        self.classes: list[Label] = []
        self.row_of: dict[Label, int] = {}
        self.random = torch.Generator().manual_seed(seed)
        self.stored = State(backbone.device)
        self.undo_record = UndoRecord(self.stored.registry)
        self._latest: dict[str, Any] = {}
        self._solving = threading.RLock()  # one solution may need another
        self.build(self.stored)
        self.calibration = Calibration(self.stored.scope("calibration"))
        self.prequential: Prequential | None = None
        if getattr(options, "augment", "none") != "none":
            self.stored.trace(removed=AUGMENTED)

    @classmethod
    def read_options(cls, values: Mapping[str, Any]) -> Any:
        """The method's resolved options from names and values, which may be texts as on a command line."""
        return build_options(cls.Options, values)

    def build(self, state: State) -> None:
        """Declares everything that is stored."""

    def flush(self) -> None:
        """Waits for updates that are still running on the device, and raises their errors."""

    def latest(self, solve: Callable[[], T]) -> T:
        """What `solve` returns for the state as it is, computed once until the state changes, by one thread."""
        with self._solving:
            if solve.__name__ not in self._latest:
                self._latest[solve.__name__] = solve()
            found: T = self._latest[solve.__name__]
            return found

    def __repr__(self) -> str:
        """Method, backbone, classes, images learnt and bytes stored.

        >>> import prol
        >>> prol.create("ncm", "tiny", device="cpu")
        <learner ncm on vit_tiny_patch16_128.distilled: no classes, nothing learnt, 0 bytes stored>
        """
        return f"<learner {self.name} on {self.backbone.name}: {', '.join(self._facts())}>"

    def _repr_html_(self) -> str:
        facts = "".join(f"<li>{escape(fact)}</li>" for fact in self._facts())
        return f"<p>learner <b>{escape(self.name)}</b> on {escape(self.backbone.name)}</p><ul>{facts}</ul>"

    def _facts(self) -> tuple[str, str, str]:
        """Classes, images learnt and bytes stored."""
        counts, stored = self.class_counts(), self.footprint()
        images = self.calibration.images if counts is None else round(float(counts.sum()))
        size = stored.parameters_stored.bytes + stored.statistics_stored.bytes + stored.samples_stored.bytes
        names, total = ", ".join(str(name) for name in self.classes[:_MOST_NAMED]), len(self.classes)
        more = f" and {total - _MOST_NAMED:,} more" if total > _MOST_NAMED else ""
        known = f"{total:,} class{'es' * (total > 1)} ({names}{more})" if total else "no classes"
        learnt = f"{images:,} image{'s' * (images > 1)} learnt" if images else "nothing learnt"
        return known, learnt, f"{size:,} bytes stored"

    def __dir__(self) -> list[str]:
        """The names of the documentation, which completion offers; those for writing a method are on its class."""
        return sorted({*_DOCUMENTED, *(name for name in object.__dir__(self) if name.startswith("__"))})

    # Saving

    def state(self) -> SavedState:
        """Everything needed to resume bit for bit: copies, independent of the learner."""
        self.flush()
        tensors = {name: tensor.detach().cpu().clone() for name, tensor in self.stored.saved_tensors().items()}
        meta = {"classes": list(self.classes), "method": self.stored.saved_values()}
        return tensors | {"random": self.random.get_state()}, meta

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Loads what `state` returned, on this learner's device."""
        self.undo_record.forget()
        self.declare_prequential("prequential" in meta["method"])
        self._name_classes(meta["classes"])
        self._latest.clear()
        self.random.set_state(tensors["random"].cpu())
        here = {name: t.to(self.backbone.device, copy=True) for name, t in tensors.items() if name != "random"}
        self.stored.load(here, meta["method"], len(self.classes))
        if self.prequential is not None:
            self.prequential.require_consistent(len(self.classes))

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

        prol.save(cast("Learner", self), folder, least_count)

    def declare_prequential(self, wanted: bool) -> None:
        """Declares prequential statistics, or removes them from the state."""
        if wanted and self.prequential is None:
            self.prequential = Prequential(self.stored)
        elif not wanted and self.prequential is not None:
            self.prequential.drop()
            self.prequential = None

    def enable_prequential(self, enabled: bool = True, record_ids: bool | int = False) -> None:
        """From the next chunk on, each chunk is predicted before it is learnt, and compared with its labels.

        The sums are part of the state, for `learning_curve`. With `record_ids` the ids of images with improbable labels
        are, too, for `label_issues`: at most 1000, or so many. With `enabled` false all of it is erased.
        """
        capacity = int(record_ids) if not isinstance(record_ids, bool) else RECORDED * record_ids
        if capacity < 0:
            raise ValueError(f"record_ids must be true, false, or at least 0, got {record_ids}")
        self.flush()
        self.undo_record.forget()
        begins = enabled and self.prequential is None
        self.declare_prequential(enabled)
        if self.prequential is not None:
            if begins:
                self.prequential.begin(len(self.classes), self.class_counts())
            self.prequential.record_at_most(capacity)

    # Undoing

    def enable_undo(self, enabled: bool = True) -> None:
        """From the next chunk on, `undo` works. The record of a chunk is in memory only, and never saved.

        ValueError where it would take more than 200 MB. With `enabled` false, undo is off again, and the record freed.
        """
        self.undo_record.enable(enabled)

    def undo(self) -> None:
        """Restores the state, classes and random state, bit for bit, as before the last chunk.

        Only the last chunk can be undone, and only if it was learnt after `enable_undo`: ValueError otherwise.
        """
        self.flush()
        record, random = self.undo_record.last()
        self._return_to(record, random, UNDONE)
        self._latest.clear()

    def _return_to(self, record: Record | None, random: Tensor, reason: str = FAILED) -> None:
        """Restores everything as before a chunk, of which there is no record where it had nothing to roll back."""
        self.random.set_state(random)
        if record is not None:
            self.undo_record.forget(reason)  # its copies may become the state itself
            self._name_classes(self.classes[: record.classes])
            self.stored.roll_back(record)

    # Classes

    def register(self, names: Sequence[Label]) -> None:
        """Adds unseen classes, each with its row in every table."""
        for name in names:
            self.row_of[name] = len(self.classes)
            self.classes.append(name)
        self.stored.add_classes(len(names))

    def _name_classes(self, names: Sequence[Label]) -> None:
        self.classes = list(names)
        self.row_of = {name: row for row, name in enumerate(self.classes)}

    def read_chunk(self, images: Any, labels: Any) -> tuple[Pixels, list[Label]]:
        """Images and their labels, one for each; there must be one at least."""
        pixels, names = self.backbone.read(images), read_labels(labels)
        if not len(pixels):
            raise ValueError("the chunk is empty: there must be at least one image")
        require_label_each(len(pixels), names)
        return pixels, names

    def known_row(self, name: Label) -> int:
        """The row of a class that must be known."""
        [name] = read_labels([name])
        if name in self.row_of:
            return self.row_of[name]
        other = str(name) if isinstance(name, int) else int(name) if re.fullmatch(r"-?[0-9]{1,18}", name) else None
        if other is not None and other in self.row_of:
            raise UnknownClass(f"no class {name!r}, but there is {other!r}: 1 and '1' are two classes")
        raise UnknownClass(f"no class {name!r}: {len(self.classes)} classes are known, see learner.classes")

    def rename_class(self, old: Label, new: Label) -> None:
        """Gives a class another name. LookupError where there is no such class, ValueError where `new` is taken."""
        row, [name] = self.known_row(old), read_labels([new])
        require_text([name])
        if self.row_of.get(name, row) != row:
            raise ValueError(f"there is a class {name!r} already: merge {old!r} into it, or choose another name")
        self.undo_record.forget()
        del self.row_of[self.classes[row]]
        self.classes[row] = name
        self.row_of[name] = row

    def remove_class(self, name: Label) -> Removal:
        """Erases what is stored of a class alone; it can be learnt again. The other classes keep their order."""
        row = self.known_row(name)
        contents = self._changeable(row)
        tensors, meta = self.state()
        said = contents.take_out(tensors, meta["method"], row)
        erased = self._drop_row(tensors, meta, contents, row)
        return Removal(
            (*erased, *[said] * bool(said)),
            (*contents.traces, *self.notes(), ELSEWHERE),
            not contents.traces,
        )

    def merge_classes(self, source: Label, into: Label) -> Removal:
        """What was learnt of `source` becomes part of `into`, and its row goes."""
        row, target = self.known_row(source), self.known_row(into)
        if row == target:
            raise ValueError(f"class {source!r} cannot be merged into itself: name another one")
        contents = self._changeable(row)
        if contents.merge_refusal:
            raise ValueError(contents.merge_refusal)
        tensors, meta = self.state()
        contents.put_together(tensors, meta["method"], row, target)
        erased = self._drop_row(with_rows_together(tensors, contents, row, target), meta, contents, row)
        part = f"what was learnt of it is part of {into!r} now"
        return Removal(erased, (part, *contents.merged, ELSEWHERE), not contents.merged)

    def _emptied(self, rows: Tensor) -> list[Label]:
        """Classes with no image left once those of the class rows `[B]` are gone; refuses more than were learnt."""
        counted = self.class_counts()
        if counted is None:
            return []
        gone, less = [], torch.bincount(rows, minlength=len(self.classes)).tolist()
        for name, count, fewer in zip(self.classes, counted.tolist(), less, strict=True):
            if fewer > count:
                raise ValueError(
                    f"{count:.0f} images of {name!r} were learnt, but {fewer} are to be unlearnt: "
                    "give only what was learnt"
                )
            if 0 < fewer == count:
                gone.append(name)
        return gone

    def _without_images(self, images: int, gone: Sequence[Label], traces: Sequence[str]) -> Removal:
        """So many images were subtracted, which left these traces; drops the classes that are gone with them."""
        self.undo_record.forget()
        self._latest.clear()
        for name in gone:
            row = self.known_row(name)
            if self.prequential is not None:
                self.prequential.forget(row)
            self._drop_row(*self.state(), self.contents(row), row)
        erased = [f"the features of {images} images, from every sum and count they were in"]
        erased += [f"{len(gone)} classes of which no image is left"] if gone else []
        return Removal(tuple(erased), (*traces, *self.notes(), ELSEWHERE), not traces)

    def notes(self) -> list[str]:
        """What removing a class, or unlearning images, leaves in statistics of predictions."""
        return self.calibration.notes() + ([] if self.prequential is None else self.prequential.notes())

    def _changeable(self, row: int) -> Contents:
        contents = self.contents(row)
        if contents.refusal:
            raise ValueError(contents.refusal)
        return contents

    def _drop_row(self, tensors: Tensors, meta: dict[str, Any], contents: Contents, row: int) -> tuple[str, ...]:
        """Loads the state without a row; returns which tensors had one."""
        left, touched = without_row(tensors, meta["method"], contents, row)
        names = meta["classes"]
        self.load_state(left, {"classes": [*names[:row], *names[row + 1 :]], "method": meta["method"]})
        return ("its name", f"its rows of {', '.join(touched)}") if touched else ("its name",)

    def contents(self, row: int | None = None) -> Contents:
        """What the saved tensors are, and what holds a trace of the class in `row` if that is removed."""
        return self.stored.contents(row)

    # Describing

    def class_counts(self) -> Tensor | None:
        """How many images of each of `classes` it has learnt, `[C]`; None where the method does not count."""
        return self.stored.registry.counts()

    def footprint(self) -> Footprint:
        """What it trains and stores; a solved head counts as parameters though it is not saved."""
        columns, dtype = self.stored.registry.solved
        head = torch.empty(len(self.classes), columns, device="meta", dtype=dtype)
        parameters = Amount.of(*self.stored.of_kind("parameter"), head)
        statistics = Amount.of(*self.stored.of_kind("statistic"))
        trained = Amount.of(*self.trained_tensors())
        return Footprint(trained, parameters, statistics, self.stored.registry.samples())

    def trained_tensors(self) -> Sequence[Tensor]:
        """What an update trains now."""
        return ()

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
