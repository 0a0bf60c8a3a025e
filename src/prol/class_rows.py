"""Rows of classes in a learner's state: taking one out, putting two together, and saying what that leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import torch
from torch import Tensor

Tensors = dict[str, Tensor]
Combine = Literal["sum", "mean", "either", "keep"]
"""What the row of two merged classes is: their sum, their mean, true where one is, or that of the class that stays."""
Together = Combine

ELSEWHERE = "checkpoints, exports and other copies made before keep everything"
AGAINST_IT = "the rows of the other classes were trained against it"
AUGMENTED = "the random state has moved on by the augmentation of its images"
AVERAGED = "its row of the head is the mean of both rows, which were trained against each other"
KEPT_ROW = "its row is the one that the class had before: images of the other one were not learnt as its own"

LINEAR_HEAD: dict[str, Together] = {
    f"{group}{name}{rest}": "mean"
    for name in ("weight", "bias")
    for group, rest in (("head/", ""), ("adam/head.", "/*"), ("sgd/head.", ""))
}
"""A linear map over all classes, and its moments under either optimiser."""

TASK_HEADS: dict[str, Together] = dict.fromkeys(
    ("head/weight", "head/bias", "adam/head.weight/*", "adam/head.bias/*"), "keep"
)
"""A head a task; rows of different tasks stand behind different LayerNorms, so that they have no mean."""


class UnknownClass(KeyError):
    """No class of this name; unlike a plain KeyError it prints as a sentence."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Removal:
    """What is gone, what keeps a trace, and whether the rest is as if it had never been.

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

    tables: Mapping[str, Together]
    """Those with a row for each class."""
    statistics: tuple[str, ...] = ()
    """Those that add up what was seen; what is neither this nor a sample is trained."""
    samples: tuple[str, ...] = ()
    """Those that hold single samples, or features of them."""
    traces: tuple[str, ...] = ()
    """Sentences on what keeps a trace of a class whose row is taken out; none where nothing does."""
    merged: tuple[str, ...] = ()
    """Sentences on how two classes put together differ from one; none where they do not."""
    first_moment: int = 0
    take_out: Callable[[Tensors, dict[str, Any], int], str] | None = None
    """Takes a class out of what all share, before its row goes; gives a sentence on it."""
    put_together: Callable[[Tensors, dict[str, Any], int, int], None] | None = None
    """Puts together what is not rows of tables, before they are."""
    move_rows: Callable[[dict[str, Any], int], None] | None = None
    """Moves class rows among the JSON values when a row is gone."""
    refusal: str = ""
    """Why no row can be taken out."""
    merge_refusal: str = ""
    """Why two cannot be put together."""

    def kind(self, name: str) -> str:
        """What a tensor of the state is, in words."""
        if name == "random":
            return "random state"
        if any(fnmatchcase(name, pattern) for pattern in self.samples):
            return "sample"
        if _is_moment(name):
            return "optimiser moment"
        known = any(fnmatchcase(name, pattern) for pattern in self.statistics)
        return "statistic" if known else "unknown" if self.refusal and not self.tables else "parameter"

    def together(self, name: str) -> Together | None:
        """How rows of a tensor are put together; None where it has no row for each class."""
        return next((how for pattern, how in self.tables.items() if fnmatchcase(name, pattern)), None)


def without_row(tensors: Tensors, meta: dict[str, Any], contents: Contents, row: int) -> tuple[Tensors, list[str]]:
    """The tensors without a class, and the names of those that had a row of it; `meta` gets fewer rows in place."""
    kept, touched = dict(tensors), []
    for name in tensors:
        if contents.together(name) is None or name.endswith("/rows"):
            continue
        where = _rows_in_play(name, tensors)
        if where is None:
            place = row - (contents.first_moment if _is_moment(name) else 0)
            if 0 <= place < len(tensors[name]):
                kept[name] = torch.cat([tensors[name][:place], tensors[name][place + 1 :]])
                touched.append(name)
        elif bool((where == row).any()):
            kept[name] = tensors[name][where != row]
            touched.append(name)
    for name in tensors:
        if name.endswith("/rows") and contents.together(name) is not None:
            rows = tensors[name][tensors[name] != row]
            kept[name] = torch.where(rows > row, rows - 1, rows)
    for group in {name.rpartition("/")[0] for name in kept if name.endswith("/rows") and not len(kept[name])}:
        if contents.together(f"{group}/rows") is not None:  # as if none of it had ever been in play
            kept = {name: tensor for name, tensor in kept.items() if name.rpartition("/")[0] != group}
    (contents.move_rows or _shorten)(meta, row)
    return kept, touched


def with_rows_together(tensors: Tensors, contents: Contents, source: int, into: int) -> Tensors:
    """The tensors with what two classes have together in the row of `into`; that of `source` stays as it is."""
    merged = dict(tensors)
    for name, tensor in tensors.items():
        how = contents.together(name)
        if how in (None, "keep") or name.endswith("/rows"):
            continue
        where = _rows_in_play(name, tensors)
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


def _rows_in_play(name: str, tensors: Mapping[str, Tensor]) -> Tensor | None:
    """The class rows that moments are of, where they are of some rows only."""
    return tensors.get(f"{name.rpartition('/')[0]}/rows") if _is_moment(name) else None


def _is_moment(name: str) -> bool:
    return "adam" in name.split("/") or name.startswith("sgd/")


def _together(how: Together | None, into: Tensor, other: Tensor) -> Tensor:
    if how == "either":
        return into | other
    return into + other if how == "sum" else (into + other) / 2


def _shorten(meta: dict[str, Any], row: int) -> None:
    """Where tasks begin, in a method's JSON, when the row of a class is gone."""
    if "clock" in meta and meta["clock"]["first_row"] > row:
        meta["clock"]["first_row"] -= 1
    if "first_rows" in meta:
        meta["first_rows"][:] = [first - (first > row) for first in meta["first_rows"]]
