"""Classes of a learner renamed, merged and removed, images unlearnt, and what such a change leaves behind."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from prol.backbones.upload import upload
from prol.labels import Label, read_labels

if TYPE_CHECKING:
    from prol.learner import Learner

Tensors = dict[str, Tensor]
Combine = Literal["sum", "mean", "either", "keep"]
"""What the row of two merged classes is: their sum, their mean, true where one is, or that of the class that stays."""

ELSEWHERE = "checkpoints, exports and other copies made before still hold everything"
AGAINST_IT = "the rows of the other classes were trained against it"
AUGMENTED = "the random state has moved on by the augmentation of its images"
AVERAGED = "its row of the head is the mean of both rows, which were trained against each other"
KEPT_ROW = "its row is the one that the class had before: images of the other one were not learnt as its own"


class UnknownClass(KeyError):
    """No class of this name; unlike a plain KeyError it prints as a sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Removal:
    """What was erased, what still holds a trace, and whether the rest is as if it had never been learnt.

    After a merge `exact` says that the rest is as if both classes had been taught under one name.
    """

    erased: tuple[str, ...]
    remains: tuple[str, ...]
    exact: bool


@dataclass(frozen=True)
class Contents:
    """What the tensors of a learner's state are; names may be patterns with `*`.

    Moments of an optimiser that lie in a group with "rows" are those of the rows named there; all others begin at the
    class row `first_moment`.
    """

    tables: Mapping[str, Combine]
    """Those with a row for each class."""
    statistics: tuple[str, ...] = ()
    """Those that are sums over what was seen; what is neither this nor a sample is trained."""
    samples: tuple[str, ...] = ()
    """Those that hold single samples, or features of them."""
    moments: tuple[str, ...] = ()
    """Those that an optimiser stores of what it trains."""
    traces: tuple[str, ...] = ()
    """Sentences on what still holds a trace of a removed class; none where nothing does."""
    merged: tuple[str, ...] = ()
    """Sentences on how two merged classes differ from one; none where they do not."""
    first_moment: int = 0
    take_out: Callable[[Tensors, dict[str, Any], int], str] | None = None
    """Removes a class from what all classes share, before its row is removed; returns a sentence on it."""
    put_together: Callable[[Tensors, dict[str, Any], int, int], None] | None = None
    """Merges what is not rows of tables, before those are merged."""
    move_rows: Callable[[dict[str, Any], int], None] | None = None
    """Moves class rows among the JSON values when a row is removed."""
    refusal: str = ""
    """Why no class can be removed."""
    merge_refusal: str = ""
    """Why no two classes can be merged."""

    def kind(self, name: str) -> str:
        """What a tensor of the state is, in words."""
        if name == "random":
            return "random state"
        if any(fnmatchcase(name, pattern) for pattern in self.samples):
            return "sample"
        if self.is_moment(name):
            return "optimiser moment"
        return "statistic" if any(fnmatchcase(name, pattern) for pattern in self.statistics) else "parameter"

    def is_moment(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.moments)

    def together(self, name: str) -> Combine | None:
        """How rows of a tensor are merged; None where it has no row for each class."""
        return next((how for pattern, how in self.tables.items() if fnmatchcase(name, pattern)), None)


def without_row(tensors: Tensors, meta: dict[str, Any], contents: Contents, row: int) -> tuple[Tensors, list[str]]:
    """The tensors without a class, and the names of those that had a row for it; `meta` is changed in place."""
    left, touched = dict(tensors), []
    for name in tensors:
        if contents.together(name) is None or name.endswith("/rows"):
            continue
        where = _rows_in_play(name, tensors, contents)
        if where is None:
            place = row - (contents.first_moment if contents.is_moment(name) else 0)
            if 0 <= place < len(tensors[name]):
                left[name] = torch.cat([tensors[name][:place], tensors[name][place + 1 :]])
                touched.append(name)
        elif bool((where == row).any()):
            left[name] = tensors[name][where != row]
            touched.append(name)
    for name in tensors:
        if name.endswith("/rows") and contents.together(name) is not None:
            rows = tensors[name][tensors[name] != row]
            left[name] = torch.where(rows > row, rows - 1, rows)
    for group in {name.rpartition("/")[0] for name in left if name.endswith("/rows") and not len(left[name])}:
        if contents.together(f"{group}/rows") is not None:  # as if none of it had ever been in play
            left = {name: tensor for name, tensor in left.items() if name.rpartition("/")[0] != group}
    if contents.move_rows is not None:
        contents.move_rows(meta, row)
    return left, touched


def with_rows_together(tensors: Tensors, contents: Contents, source: int, into: int) -> Tensors:
    """The tensors with both classes merged in the row of `into`; that of `source` is unchanged."""
    merged = dict(tensors)
    for name, tensor in tensors.items():
        how = contents.together(name)
        if how in (None, "keep") or name.endswith("/rows"):
            continue
        where = _rows_in_play(name, tensors, contents)
        if where is None:
            if into < len(tensor):
                other = tensor[source] if source < len(tensor) else torch.zeros_like(tensor[into])
                merged[name] = tensor.clone()
                merged[name][into] = _together(how, tensor[into], other)
        elif bool((where == into).any()):
            other = tensor[where == source].sum(0) if bool((where == source).any()) else torch.zeros_like(tensor[0])
            merged[name] = tensor.clone()
            merged[name][where == into] = _together(how, tensor[where == into], other)
    return merged


def copied(state: tuple[Tensors, dict[str, Any]]) -> tuple[Tensors, dict[str, Any]]:
    """A state that may be changed: its tensors are copies already, its JSON is not."""
    return dict(state[0]), deepcopy(state[1])


def _rows_in_play(name: str, tensors: Mapping[str, Tensor], contents: Contents) -> Tensor | None:
    """The class rows that moments are of, where they are of some rows only."""
    return tensors.get(f"{name.rpartition('/')[0]}/rows") if contents.is_moment(name) else None


def _together(how: Combine | None, into: Tensor, other: Tensor) -> Tensor:
    if how == "either":
        return into | other
    return into + other if how == "sum" else (into + other) / 2


# What can be done to the classes of any learner.


def rename_class(learner: Learner, old: Label, new: Label) -> None:
    """Gives a class another name."""
    row, [name] = row_of(learner, old), read_labels([new])
    if name in learner.row_of and learner.row_of[name] != row:
        raise ValueError(f"there is a class {name!r} already: merge {old!r} into it, or choose another name")
    del learner.row_of[learner.classes[row]]
    learner.classes[row] = name
    learner.row_of[name] = row


def remove_class(learner: Learner, name: Label) -> Removal:
    """Removes a class from the learner's state."""
    row = row_of(learner, name)
    contents = _changeable(learner, row)
    tensors, meta = copied(learner.state())
    said = [contents.take_out(tensors, meta["method"], row)] if contents.take_out is not None else []
    erased = _drop(learner, tensors, meta, contents, row)
    return Removal((*erased, *said), (*contents.traces, ELSEWHERE), not contents.traces)


def merge_classes(learner: Learner, source: Label, into: Label) -> Removal:
    """Adds what was learnt of one class to another."""
    row, target = row_of(learner, source), row_of(learner, into)
    if row == target:
        raise ValueError(f"class {source!r} cannot be merged into itself: name another one")
    contents = _changeable(learner, row)
    if contents.merge_refusal:
        raise ValueError(contents.merge_refusal)
    tensors, meta = copied(learner.state())
    if contents.put_together is not None:
        contents.put_together(tensors, meta["method"], row, target)
    erased = _drop(learner, with_rows_together(tensors, contents, row, target), meta, contents, row)
    part = f"what was learnt of it is part of {into!r} now"
    return Removal(erased, (part, *contents.merged, ELSEWHERE), not contents.merged)


def unlearn(learner: Learner, images: Any, labels: Any) -> Removal:
    """Subtracts images from the sums they were added to."""
    pixels, names = learner.backbone.read(images), read_labels(labels)
    if not len(pixels) or len(pixels) != len(names):
        raise ValueError(f"{len(pixels)} images and {len(names)} labels: each image needs its label, and at least one")
    rows = torch.tensor([row_of(learner, name) for name in names])
    gone = _emptied(learner, rows)
    augment = getattr(learner.options, "augment", "none")
    if learner.additive and augment != "none":
        raise ValueError(
            f"with augment={augment} images cannot be unlearnt: which crop of each was learnt is not stored"
        )
    with torch.no_grad():
        encoded = learner.encoded(pixels) if learner.additive else torch.empty(0)
        traces = learner.subtract(encoded, upload(rows, learner.backbone.device))
    learner._latest.clear()
    for name in gone:
        row = row_of(learner, name)
        tensors, meta = copied(learner.state())
        _drop(learner, tensors, meta, learner.contents(row), row)
    erased = [f"the features of {len(names)} images, from every sum and count they were in"]
    erased += [f"{len(gone)} classes of which no image is left"] if gone else []
    return Removal(tuple(erased), (*traces, ELSEWHERE), not traces)


def _emptied(learner: Learner, rows: Tensor) -> list[Label]:
    """Classes with no image left once those of the class rows `[B]` are gone; refuses more than were learnt."""
    counted = learner.class_counts()
    if counted is None:
        return []
    gone, less = [], torch.bincount(rows, minlength=len(learner.classes)).tolist()
    for name, count, fewer in zip(learner.classes, counted.tolist(), less, strict=True):
        if fewer > count:
            raise ValueError(
                f"{count:.0f} images of {name!r} were learnt, but {fewer} are to be unlearnt: give only what was learnt"
            )
        if 0 < fewer == count:
            gone.append(name)
    return gone


def row_of(learner: Learner, name: Label) -> int:
    """The row of a class that must be known."""
    [name] = read_labels([name])
    if name in learner.row_of:
        return learner.row_of[name]
    other = str(name) if isinstance(name, int) else int(name) if re.fullmatch(r"-?[0-9]{1,18}", name) else None
    if other is not None and other in learner.row_of:
        raise UnknownClass(f"no class {name!r}, but there is {other!r}: 1 and '1' are two classes")
    raise UnknownClass(f"no class {name!r}: {len(learner.classes)} classes are known, see learner.classes")


def _changeable(learner: Learner, row: int) -> Contents:
    contents = learner.contents(row)
    if contents.refusal:
        raise ValueError(contents.refusal)
    return contents


def _drop(learner: Learner, tensors: Tensors, meta: dict[str, Any], contents: Contents, row: int) -> tuple[str, ...]:
    """Loads the state without a row; returns which tensors had one."""
    left, touched = without_row(tensors, meta["method"], contents, row)
    learner.load_state(
        left, {"classes": [*meta["classes"][:row], *meta["classes"][row + 1 :]], "method": meta["method"]}
    )
    return ("its name", f"its rows of {', '.join(touched)}") if touched else ("its name",)
