"""What a class is called; classes removed from a saved state or merged in it, and what such a change leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

Label = str | int
"""Text or a whole number; 1 and "1" are two different classes."""
Tensors = dict[str, Tensor]
Combine = Literal["sum", "mean", "either", "keep"]
"""What the row of two merged classes is: their sum, their mean, true where one is, or that of the class that stays."""

ELSEWHERE = "checkpoints, exports and other copies made before still hold everything"
AGAINST_IT = "the rows of the other classes were trained against it"
AUGMENTED = "the random state has moved on by the augmentation of its images"
AVERAGED = "its row of the head is the mean of both rows, which were trained against each other"
KEPT_ROW = "its row is the one that the class had before: images of the other one were not learnt as its own"


def read_labels(labels: Any) -> list[Label]:
    """Turns what a user may hand over (list, array, tensor) into plain labels, or says what is wrong.

    >>> read_labels(np.array([3, 1]))
    [3, 1]
    >>> read_labels(["cat", 7])
    ['cat', 7]
    """
    if isinstance(labels, torch.Tensor):
        labels = labels.detach().cpu()
    if hasattr(labels, "tolist"):  # arrays, tensors, and the columns of data frames
        if np.ndim(labels) != 1:
            raise ValueError(f"labels must have one dimension, got shape {tuple(np.shape(labels))}")
        labels = labels.tolist()
    if isinstance(labels, str | bytes):
        raise ValueError(f"labels must be a sequence with one label per image, got {labels!r}; pass [{labels!r}]")
    if not isinstance(labels, Sequence):
        raise ValueError(f"labels must be a list or an array with one label per image, got a {type(labels).__name__}")
    return [_read_label(label) for label in labels]


def _read_label(label: Any) -> Label:
    if isinstance(label, np.generic | torch.Tensor) and np.ndim(label) == 0:
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise ValueError(f"a label must be text or a whole number, got {label!r} ({type(label).__name__})")
    plain: Label = label
    if isinstance(plain, str) and not plain.isascii():
        try:
            plain.encode()
        except UnicodeEncodeError:
            raise ValueError(f"the label {plain!r:.80} holds a lone surrogate, which no file can store") from None
    return plain


def require_label_each(images: int, labels: Sequence[Label], whose: str = "") -> None:
    """So many images need as many labels."""
    if images != len(labels):
        raise ValueError(f"{whose}{images} images but {len(labels)} labels: each image needs one label")


def require_text(labels: Sequence[Label]) -> None:
    """Refuses new classes without a name: an empty text is what a missing label looks like in a table."""
    if "" in labels:
        raise ValueError("a label is empty: leave out images without a label, or name their class")


def require_distinct(labels: Sequence[Label]) -> None:
    """Announced classes must not repeat."""
    seen: set[Label] = set()
    for label in labels:
        if label in seen:
            raise ValueError(f"class {label!r} is announced twice")
        seen.add(label)


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
    take_out: Callable[[Tensors, dict[str, Any], int], str] = lambda *_: ""
    """Removes a class from what all classes share, before its row is removed; returns a sentence on it."""
    put_together: Callable[[Tensors, dict[str, Any], int, int], None] = lambda *_: None
    """Merges what is not rows of tables, before those are merged."""
    move_rows: Callable[[dict[str, Any], int], None] = lambda *_: None
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


def _rows_in_play(name: str, tensors: Mapping[str, Tensor], contents: Contents) -> Tensor | None:
    """The class rows that moments are of, where they are of some rows only."""
    return tensors.get(f"{name.rpartition('/')[0]}/rows") if contents.is_moment(name) else None


def _together(how: Combine | None, into: Tensor, other: Tensor) -> Tensor:
    if how == "either":
        return into | other
    return into + other if how == "sum" else (into + other) / 2
