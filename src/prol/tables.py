"""What the state of a learner is made of: growing tables, and the declaration of each entry and value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Literal, TypeVar, cast
from weakref import WeakMethod

import torch
from torch import Tensor

from prol.classes import Combine, Tensors

Function = TypeVar("Function", bound=Callable[..., Any])
Kind = Literal["parameter", "statistic", "sample", "moment"]
"""Trained or solved numbers, sums over what was seen, single samples, or an optimiser's moments."""
Merge = Literal["sum", "keep"]
"""What `prol.merge` does with an entry of two learners: add them up, or take the first one's."""
Writes = Literal["all", "chunk", "none"]
"""Which rows of a table an update may overwrite: any, those of the chunk's classes, or none, since it only appends."""
Text = str | Callable[[int | None], str]
"""A sentence, or a function of a class row that returns one; empty where there is nothing to say."""


def weakly(function: Function) -> Function:
    """A bound method that does not keep its object alive; other functions as they are.

    Without it a learner and its state would refer to each other, and a copy that is dropped would take memory until the
    next garbage collection.
    """
    if not isinstance(function, MethodType):
        return function
    method = WeakMethod(function)

    def call(*given: Any) -> Any:
        found = method()
        assert found is not None
        return found(*given)

    return cast(Function, call)


@dataclass(frozen=True)
class Amount:
    """How many numbers (or samples), and how many bytes they take."""

    count: int
    bytes: int

    @classmethod
    def of(cls, *tensors: Tensor) -> Amount:
        return cls(sum(t.numel() for t in tensors), sum(t.numel() * t.element_size() for t in tensors))


class Table:
    """One row per class, or per task, in a buffer that doubles, so that a step's cost does not depend on its length.

    `rows` is the table `[count, *shape]`. `buffer` `[capacity, *shape]` holds them, with zeros behind. Its
    length seldom changes: an operation on all of it that masks what is behind `count` has a fixed shape. `moves` grows
    whenever the buffer is replaced by another.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        device: torch.device,
        dtype: torch.dtype,
        capacity: int = 0,
        initial: Callable[[int], Tensor] | None = None,
    ) -> None:
        self.buffer = torch.zeros(capacity, *shape, device=device, dtype=dtype)
        self.masked = capacity > 0
        """Whether steps work on the whole buffer and mask it, so that its shape holds while rows are added."""
        self.initial = initial
        self.count = 0
        self.moves = 0

    @property
    def rows(self) -> Tensor:
        return self.buffer[: self.count]

    def grow(self, count: int) -> None:
        """Appends `count` rows: zeros, or what `initial` returns."""
        self.append(torch.zeros(count, *self.buffer.shape[1:]) if self.initial is None else self.initial(count))

    def append(self, rows: Tensor) -> None:
        total = self.count + len(rows)
        self._reserve(total)
        self.buffer[self.count : total] = rows.to(self.buffer)
        self.count = total

    def replace(self, rows: Tensor) -> None:
        """Replaces the whole table, as when a saved state is loaded."""
        if rows.shape[1:] != self.buffer.shape[1:]:
            self.buffer, self.count = self.buffer.new_zeros(len(self.buffer), *rows.shape[1:]), 0
            self.moves += 1
        self._reserve(len(rows))
        self.buffer[: len(rows)] = rows.to(self.buffer)
        self.truncate(len(rows))

    def truncate(self, count: int) -> None:
        """Drops all rows but the first `count`."""
        self.buffer[count : self.count] = 0
        self.count = count

    def add(self, rows: Tensor, changes: Tensor, times: int = 1) -> None:
        """Adds `times` changes `[B, ...]` to their rows `[B]`."""
        self.rows.index_add_(0, rows, changes.to(self.buffer.dtype), alpha=times)

    def add_where(self, rows: Tensor, changes: Tensor, where: Tensor) -> None:
        """Adds those of changes `[B, ...]` that are true in `where`, bool `[B]`, to their rows `[B]`.

        At most one change to a row may be added: then the order in which a GPU adds them does not matter.
        """
        where = where.view(-1, *[1] * (changes.ndim - 1))
        self.rows.index_add_(0, rows, torch.where(where, changes, 0).to(self.buffer.dtype))

    def _reserve(self, total: int) -> None:
        capacity = len(self.buffer)
        while capacity < total:  # by doubling, so that it depends on `total` alone and not on how that was reached
            capacity = max(1, 2 * capacity)
        if capacity > len(self.buffer):
            grown = self.buffer.new_zeros(capacity, *self.buffer.shape[1:])
            grown[: self.count] = self.rows
            self.buffer = grown
            self.moves += 1


@dataclass
class Entry:
    """A declared tensor, table or group of tensors."""

    name: str
    kind: Kind
    read: Callable[[], Mapping[str, Tensor]]
    """The tensors as they are, by name within the entry; "" for an entry that is one tensor."""
    load: Callable[[Mapping[str, Tensor]], None]
    """Loads tensors in that form."""
    combine: Mapping[str, Combine] = field(default_factory=dict)
    """Patterns of names with one row per class, and what two classes' rows become."""
    merge: Merge = "keep"
    agree: str = ""
    """Its description, where learners that are merged must have the same."""
    saved: bool = True
    stored: bool = True
    """Whether it counts among what a learner stores."""
    table: Table | None = None
    grows: Callable[[], bool] | None = None
    """Whether the table gets a row when a class arrives; None where its owner appends rows."""
    measure: Callable[[], Callable[[], None]] | None = None
    """For a group whose tensors grow: returns a function that truncates them to their present lengths."""
    moves: Callable[[], int] | None = None
    """For a group: a number that grows whenever a buffer of it is replaced by another."""
    writes: Writes = "all"
    fixed: bool = False
    """Whether its tensors and their shapes never change."""
    every_class: bool = False
    """Whether the table always has a row for each class."""
    widens: bool = False
    """Whether the first axis of its rows grows."""
    matrix: str = ""
    """The symmetric matrix of which it is a block, where that grows by logged products; see `ProductLog`."""

    def tensors(self) -> dict[str, Tensor]:
        return {join(self.name, name): tensor for name, tensor in self.read().items()}


@dataclass
class Value:
    """A declared JSON value."""

    read: Callable[[], Any]
    load: Callable[[Any], object]
    merge: Merge = "keep"
    agree: str = ""
    is_row: bool = False
    """Whether it is a class row, or a list of them, which moves when an earlier class is removed."""
    later: bool = False
    """Whether files of earlier versions lack it."""


@dataclass(frozen=True)
class Record:
    """What is needed to roll an update back: lengths of tables, values, and copies of what it overwrites."""

    classes: int
    entries: tuple[str, ...]
    lengths: Mapping[str, int]
    values: Mapping[str, Any]
    shortenings: Mapping[str, Callable[[], None]]
    copies: dict[str, dict[str, Tensor]] = field(default_factory=dict)
    rows: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """For tables in which only some rows are overwritten: which ones, and their former values."""


@dataclass(frozen=True)
class Product:
    """leftᵀ right, of `[K, M]` each, which is added to a symmetric matrix `[M, M]`."""

    left: Tensor
    right: Tensor

    def add_to(self, blocks: Sequence[Tensor], times: int = 1) -> None:
        """Adds it to block rows that reach from the first column to the diagonal."""
        for block in blocks:
            height, end = block.shape
            block.addmm_(self.left[:, end - height : end].T, self.right[:, :end], alpha=times)


class ProductLog:
    """Products that were added to large matrices since the log began, so that the matrices need not be saved again.

    Each in-place operation on a tensor changes its version: the log notices what was not added through it.
    """

    def __init__(self, matrices: Mapping[str, Sequence[Tensor]]) -> None:
        self.products: list[tuple[str, Product]] = []
        self._versions = {name: _versions(blocks) for name, blocks in matrices.items()}

    def add(self, name: str, product: Product, blocks: Sequence[Tensor]) -> None:
        """Adds a product to the blocks of a matrix, and logs it."""
        complete = self._versions.get(name) == _versions(blocks)
        product.add_to(blocks)
        self._versions[name] = _versions(blocks) if complete else []
        self.products.append((name, product))

    def is_complete(self, matrices: Mapping[str, Sequence[Tensor]]) -> bool:
        """Whether these are the matrices from the beginning, and all that has changed them is logged."""
        return self._versions == {name: _versions(blocks) for name, blocks in matrices.items()}


def _versions(blocks: Sequence[Tensor]) -> list[tuple[int, int]]:
    return [(block.data_ptr(), block._version) for block in blocks]


@dataclass
class Merging:
    """What is said of merging learners besides how each entry merges; see `State.on_merge`."""

    requirements: list[Callable[[], None]] = field(default_factory=list)
    give: Callable[[Any], Any] | None = None
    take: Callable[[Tensors, dict[str, Any], int], Tensors] | None = None


@dataclass
class Registry:
    """All that was declared."""

    entries: dict[str, Entry] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    before_load: list[Callable[[], None]] = field(default_factory=list)
    after_load: list[Callable[[], None]] = field(default_factory=list)
    after_growth: list[Callable[[int], None]] = field(default_factory=list)
    removals: list[Callable[[Tensors, dict[str, Any], int], str]] = field(default_factory=list)
    combinations: list[Callable[[Tensors, dict[str, Any], int, int], None]] = field(default_factory=list)
    traces: list[tuple[Text, Text]] = field(default_factory=list)
    removal_refusal: str = ""
    combine_refusal: str = ""
    first_moment: Callable[[], int] = lambda: 0
    counts: Callable[[], Tensor | None] = lambda: None
    samples: Callable[[], Amount] = lambda: Amount(0, 0)
    solved: tuple[int, torch.dtype] = (0, torch.float32)
    merging: Merging = field(default_factory=Merging)
    record: Record | None = None
    log: ProductLog | None = None
    """Opened by whoever saves changes instead of whole states."""
    classes: int = 0
    loads: int = 0

    def matrices(self) -> dict[str, list[Tensor]]:
        """Block rows of the matrices that grow by logged products."""
        found: dict[str, list[Tensor]] = {}
        for entry in self.entries.values():
            if entry.matrix:
                found.setdefault(entry.matrix, []).append(entry.read()[""])
        return found

    def load_values(self, flat: Mapping[str, Any]) -> None:
        """Loads values by their full names, before any tensor is loaded."""
        for name, saved in flat.items():
            if name in self.values:
                self.values[name].load(deepcopy(saved))
        for prepare in self.before_load:
            prepare()

    def take_out(self, tensors: Tensors, values: dict[str, Any], row: int) -> str:
        """Removes a class from what all classes share in a saved state; returns sentences on it."""
        return "; ".join(filter(None, [edit(tensors, values, row) for edit in self.removals]))

    def put_together(self, tensors: Tensors, values: dict[str, Any], source: int, into: int) -> None:
        """Merges two classes in what of a saved state is not rows of tables."""
        for edit in self.combinations:
            edit(tensors, values, source, into)

    def move_rows(self, values: dict[str, Any], row: int) -> None:
        """Moves class rows among the values, single ones or lists of them, when the class in `row` is removed."""
        for name in [name for name, value in self.values.items() if value.is_row]:
            old = get_value(values, name)
            moved = [one - (one > row) for one in old] if isinstance(old, list) else old - (old > row)
            put_value(values, name, moved)


def require_declared(entry: Entry, saved: Mapping[str, Tensor], classes: int) -> None:
    """Refuses saved tensors of an entry whose names, shapes or kinds of numbers are not those it was declared with."""
    if entry.table is not None:
        rows, declared = saved.get(""), entry.table.buffer
        if rows is None:
            raise ValueError(f"{entry.name} is missing")
        first = 2 if entry.widens else 1
        if rows.ndim != declared.ndim or rows.shape[first:] != declared.shape[first:]:
            raise ValueError(f"{entry.name} has shape {list(rows.shape)}, not rows of {list(declared.shape[1:])}")
        if (entry.every_class and len(rows) != classes) or (entry.combine and len(rows) > classes):
            raise ValueError(f"{entry.name} has {len(rows)} rows for {classes} classes")
        pairs = [(entry.name, rows, declared)]
    else:
        homes = entry.read() if entry.fixed else {}
        for name in homes:
            if name not in saved:
                raise ValueError(f"{join(entry.name, name)} is missing")
            if saved[name].shape != homes[name].shape:
                shapes = f"shape {list(saved[name].shape)}, not {list(homes[name].shape)}"
                raise ValueError(f"{join(entry.name, name)} has {shapes}")
        pairs = [(join(entry.name, name), saved[name], home) for name, home in homes.items()]
    for name, found, home in pairs:
        if _number_kind(found) != _number_kind(home):
            raise ValueError(f"{name} holds {_number_kind(found)}, not {_number_kind(home)}")


def _number_kind(tensor: Tensor) -> str:
    if tensor.is_floating_point():
        return "floating-point numbers"
    return "truth values" if tensor.dtype == torch.bool else "complex numbers" if tensor.is_complex() else "integers"


def copy_into(home: Tensor, saved: Tensor) -> None:
    with torch.no_grad():
        home.copy_(saved)


def join(name: str, inner: str) -> str:
    return f"{name}/{inner}" if inner and name else name or inner


def is_under(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(f"{prefix}/")


def within(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one entry by their names within it."""
    if name in tensors:
        return {"": tensors[name]}
    return {full.removeprefix(f"{name}/"): tensor for full, tensor in tensors.items() if full.startswith(f"{name}/")}


def get_value(values: Mapping[str, Any], name: str) -> Any:
    """The value under a name with slashes in nested dictionaries."""
    found: Any = values
    for part in name.split("/"):
        found = found[part]
    return found


def holds(values: Mapping[str, Any], name: str) -> bool:
    """Whether there is a value under a name with slashes."""
    try:
        get_value(values, name)
    except KeyError:
        return False
    return True


def put_value(values: dict[str, Any], name: str, value: Any) -> None:
    """Puts a value under a name with slashes into nested dictionaries."""
    *groups, last = name.split("/")
    for group in groups:
        values = values.setdefault(group, {})
    values[last] = value


def weak_text(text: Text) -> Text:
    return text if isinstance(text, str) else weakly(text)


def said(text: Text, row: int | None) -> str:
    return text if isinstance(text, str) else text(row)
