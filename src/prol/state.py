"""What a learner stores: each tensor is declared once, and everything else follows from the declaration.

Growth when classes arrive, saving, loading, rollback, footprint, class operations, merging and the audit are loops over
what was declared here. Components (moments, heads, optimisers) declare their own tensors under a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields
from typing import Any
from weakref import ref

import torch
from torch import Tensor

from prol.classes import Combine, Contents, Tensors
from prol.tables import (
    Amount,
    Entry,
    Kind,
    Merge,
    Product,
    Record,
    Registry,
    Table,
    Text,
    Value,
    Writes,
    copy_into,
    get_value,
    holds,
    is_under,
    join,
    put_value,
    require_declared,
    said,
    weak_text,
    weakly,
    within,
)
from prol.undo import open_record, roll_back


class State:
    """Declares entries under a prefix, and works on all that were declared there."""

    def __init__(self, device: torch.device | str = "cpu", prefix: str = "", registry: Registry | None = None) -> None:
        self.device, self.prefix = torch.device(device), prefix
        self.registry = Registry() if registry is None else registry

    def scope(self, name: str) -> State:
        """The same state, declaring under `name/`."""
        return State(self.device, f"{self.prefix}{name}/", self.registry)

    def table(
        self,
        name: str,
        shape: int | tuple[int, ...] = (),
        *,
        kind: Kind,
        dtype: torch.dtype = torch.float32,
        combine: Combine | None = "sum",
        initial: Callable[[int], Tensor] | None = None,
        capacity: int = 0,
        grows: Callable[[], bool] | bool = True,
        counts: bool = False,
        stored: bool = True,
        device: torch.device | None = None,
        writes: Writes = "all",
        widens: bool = False,
    ) -> Table:
        """A table with one row per class, which grows when classes arrive.

        `combine` says what the row of two merged classes is, None where rows are not classes'; statistics that combine
        as sums add up when learners are merged. `initial` returns so many fresh rows, zeros by default. The buffer has
        `capacity` from the start, for steps that mask it. With `grows` false the owner appends rows. `counts` marks the
        images of each class, for `Learner.class_counts`. An update `writes` to rows of its chunk's classes alone, or to
        none where it only appends: an undo record is then smaller. With `widens` the first axis of a row grows, too.
        """
        dims = (shape,) if isinstance(shape, int) else shape
        table = Table(dims, device or self.device, dtype, capacity, None if initial is None else weakly(initial))
        merge: Merge = "sum" if kind == "statistic" and combine == "sum" else "keep"
        self._declare(
            Entry(
                self.prefix + name,
                kind,
                lambda: {"": table.rows},
                lambda saved: table.replace(saved[""]),
                {} if combine is None else {"": combine},
                merge,
                stored=stored,
                table=table,
                grows=(lambda: True) if grows is True else None if grows is False else weakly(grows),
                writes=writes,
                every_class=grows is True and combine is not None,
                widens=widens,
            )
        )
        if counts:
            self.count_by(lambda: table.rows)
        return table

    def tensor(self, name: str, tensor: Tensor, *, kind: Kind, merge: Merge = "keep") -> Tensor:
        """A tensor of fixed shape, which is loaded in place."""
        read, load = (lambda: {"": tensor}), (lambda saved: copy_into(tensor, saved[""]))
        self._declare(Entry(self.prefix + name, kind, read, load, merge=merge, fixed=True))
        return tensor

    def matrix(self, name: str, blocks: Sequence[Tensor], *, kind: Kind, merge: Merge = "keep") -> list[Tensor]:
        """Block rows of a symmetric matrix, as tensors `name.0` and so on; what `add_product` adds can be logged."""
        for number, block in enumerate(blocks):
            self.tensor(f"{name}.{number}", block, kind=kind, merge=merge)
            self.registry.entries[f"{self.prefix}{name}.{number}"].matrix = self.prefix + name
        return list(blocks)

    @property
    def logs_products(self) -> bool:
        return self.registry.log is not None

    def add_product(self, name: str, product: Product, blocks: Sequence[Tensor]) -> None:
        """Adds a product to a declared matrix, and logs it if there is a log."""
        if self.registry.log is None:
            product.add_to(blocks)
        else:
            self.registry.log.add(self.prefix + name, product, blocks)

    def tensors(
        self,
        name: str,
        tensors: Callable[[], Mapping[str, Tensor]],
        *,
        kind: Kind,
        stored: bool = True,
        agree: str = "",
    ) -> None:
        """Several tensors of fixed shape, such as a network's parameters, which are loaded in place."""
        tensors = weakly(tensors)

        def load(saved: Mapping[str, Tensor]) -> None:
            for inner, tensor in tensors().items():
                copy_into(tensor, saved[inner])

        self._declare(Entry(self.prefix + name, kind, tensors, load, agree=agree, stored=stored, fixed=True))

    def optional(self, name: str, owner: Any, attribute: str, *, kind: Kind, agree: str = "") -> None:
        """An attribute of `owner` that is None at first and a tensor later."""

        owner = ref(owner)

        def read() -> dict[str, Tensor]:
            found = getattr(owner(), attribute)
            return {} if found is None else {"": found}

        def load(saved: Mapping[str, Tensor]) -> None:
            setattr(owner(), attribute, saved.get(""))

        self._declare(Entry(self.prefix + name, kind, read, load, agree=agree))

    def group(
        self,
        name: str,
        read: Callable[[], Mapping[str, Tensor]],
        load: Callable[[Mapping[str, Tensor]], None],
        *,
        kind: Kind,
        combine: Mapping[str, Combine] | None = None,
        agree: str = "",
        saved: bool = True,
        stored: bool = True,
        measure: Callable[[], Callable[[], None]] | None = None,
        moves: Callable[[], int] | None = None,
    ) -> None:
        """Tensors whose number or names change; `combine` has patterns of those with one row per class.

        What is not `saved` is made again from the seed. `measure` returns a function that takes back growth which comes
        later, where updates add rows. `moves` grows whenever a buffer is replaced by another, which makes captured
        steps invalid.
        """
        entry = Entry(self.prefix + name, kind, weakly(read), weakly(load), combine or {}, agree=agree)
        entry.saved, entry.stored = saved, stored
        entry.measure, entry.moves = measure and weakly(measure), moves and weakly(moves)
        self._declare(entry)

    def value(
        self,
        name: str,
        owner: Any = None,
        attribute: str = "",
        *,
        read: Callable[[], Any] | None = None,
        load: Callable[[Any], object] | None = None,
        merge: Merge = "keep",
        agree: str = "",
        is_row: bool = False,
        later: bool = False,
    ) -> None:
        """A JSON value: an attribute of `owner`, or what `read` returns; earlier versions did not save `later` ones."""
        at, holder = attribute or name, (lambda: None) if owner is None else ref(owner)
        get = weakly(read or (lambda: getattr(holder(), at)))
        put = weakly(load or (lambda value: setattr(holder(), at, value)))
        self.registry.values[self.prefix + name] = Value(get, put, merge, agree, is_row, later)

    def fields(self, owner: Any, *, rows: tuple[str, ...] = (), sums: tuple[str, ...] = ()) -> None:
        """All fields of a dataclass as values; `rows` are class rows, `sums` add up when learners are merged."""
        for one in fields(owner):
            merge: Merge = "sum" if one.name in sums else "keep"
            self.value(one.metadata.get("key", one.name), owner, one.name, merge=merge, is_row=one.name in rows)

    def trace(self, removed: Text = "", merged: Text = "") -> None:
        """Sentences on what still holds a trace of a removed class, and on how two merged classes differ from one."""
        self.registry.traces.append((weak_text(removed), weak_text(merged)))

    def refuse(self, removal: str = "", merging: str = "") -> None:
        """Says why no class can be removed, or why no two can be merged."""
        self.registry.removal_refusal, self.registry.combine_refusal = removal, merging

    def on_remove(self, edit: Callable[[Tensors, dict[str, Any], int], str]) -> None:
        """`edit(tensors, values, row)` takes a class out of a saved state before its rows go; returns what is gone."""
        self.registry.removals.append(weakly(edit))

    def on_combine(self, edit: Callable[[Tensors, dict[str, Any], int, int], None]) -> None:
        """`edit(tensors, values, source, into)` merges two classes in what of a saved state is not rows of tables."""
        self.registry.combinations.append(weakly(edit))

    def on_load(self, refresh: Callable[[], None], prepare: Callable[[], None] | None = None) -> None:
        """`refresh` follows whenever stored tensors were replaced; `prepare` comes when only values have been."""
        self.registry.after_load.append(weakly(refresh))
        if prepare is not None:
            self.registry.before_load.append(weakly(prepare))

    def on_growth(self, follow: Callable[[int], None]) -> None:
        """`follow(count)` is called after tables have grown by so many classes."""
        self.registry.after_growth.append(weakly(follow))

    def count_by(self, counts: Callable[[], Tensor | None]) -> None:
        """`counts` returns how many images of each class were learnt, `[C]`."""
        self.registry.counts = weakly(counts)

    def count_samples_by(self, amount: Callable[[], Amount]) -> None:
        """`amount` returns how many samples are stored, and their bytes."""
        self.registry.samples = weakly(amount)

    def solves(self, columns: int, dtype: torch.dtype) -> None:
        """Says that predictions solve one row of so many columns per class; it counts as stored, but is not saved."""
        self.registry.solved = columns, dtype

    def on_merge(
        self,
        require: Callable[[], None] | None = None,
        give: Callable[[Any], Any] | None = None,
        take: Callable[[Tensors, dict[str, Any], int], Tensors] | None = None,
    ) -> None:
        """What `prol.merge` needs besides how each entry merges.

        `require` raises a ValueError where learners cannot be merged. `give` turns the declared `prol.merging.Sums`
        into those that add up; `take(tensors, values, classes)` turns what was added up into the tensors that are
        loaded.
        """
        merging = self.registry.merging
        merging.requirements += [] if require is None else [weakly(require)]
        merging.give = merging.give if give is None else weakly(give)
        merging.take = merging.take if take is None else weakly(take)

    def first_moment_at(self, row: Callable[[], int]) -> None:
        """The class row at which the moments stored for a window of a table begin."""
        self.registry.first_moment = weakly(row)

    def drop(self) -> None:
        """Removes all that was declared under this prefix."""
        for store in (self.registry.entries, self.registry.values):
            for name in [name for name in store if name.startswith(self.prefix)]:
                del store[name]

    def _declare(self, entry: Entry) -> None:
        if entry.name in self.registry.entries:
            raise ValueError(f"{entry.name!r} is declared twice")
        self.registry.entries[entry.name] = entry

    # Growing

    @property
    def classes(self) -> int:
        return self.registry.classes

    def add_classes(self, count: int) -> None:
        """Adds `count` rows to every table that has one per class, in the order of their declaration."""
        self.registry.classes += count
        for entry in self.entries():
            if entry.table is not None and entry.grows is not None and entry.grows():
                entry.table.grow(count)
        for follow in self.registry.after_growth:
            follow(count)

    # Saving and loading

    def saved_tensors(self) -> dict[str, Tensor]:
        """Every saved tensor by name, as it is."""
        return {name: t for entry in self.entries() if entry.saved for name, t in entry.tensors().items()}

    def saved_values(self) -> dict[str, Any]:
        """Every value; names with slashes are nested dictionaries."""
        found: dict[str, Any] = {}
        for name, value in self.registry.values.items():
            put_value(found, name, deepcopy(value.read()))
        return found

    def load(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any], classes: int) -> None:
        """Loads what `saved_tensors` and `saved_values` returned for so many classes."""
        self.registry.classes = classes
        self.registry.loads += 1
        declared = self.registry.values.items()
        flat = {name: get_value(values, name) for name, value in declared if not value.later or holds(values, name)}
        self.registry.load_values(flat)
        saved = [(entry, within(entry.name, tensors)) for entry in self.entries() if entry.saved]
        for entry, found in saved:
            require_declared(entry, found, classes)
        for entry, found in saved:
            entry.load(found)
        for refresh in self.registry.after_load:
            refresh()

    # Rolling back

    def record(self) -> Record:
        """Opens a record for `roll_back`; tables are only measured and nothing else is copied."""
        return open_record(self.registry)

    def overwrites(self, *names: str) -> None:
        """Announces that entries will be overwritten rather than appended to: an open record copies them first."""
        record = self.registry.record
        if record is None:
            return
        for entry in self.entries():
            if entry.name not in record.copies and any(is_under(entry.name, self.prefix + name) for name in names):
                record.copies[entry.name] = {name: tensor.detach().clone() for name, tensor in entry.read().items()}

    def close(self) -> None:
        """The update has succeeded: the record is not needed any more."""
        self.registry.record = None

    def roll_back(self, record: Record) -> None:
        """Restores everything as it was when the record was opened."""
        roll_back(self.registry, record)

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Copies of all tensors and values under this prefix, for `restore`."""
        tensors = {name: tensor.detach().clone() for name, tensor in self.saved_tensors().items()}
        values = {name: value.read() for name, value in self.registry.values.items() if name.startswith(self.prefix)}
        return tensors, deepcopy(values)

    def restore(self, snapshot: tuple[dict[str, Tensor], dict[str, Any]]) -> None:
        """Restores what is under this prefix from a snapshot."""
        tensors, values = snapshot
        for name, value in values.items():
            self.registry.values[name].load(value)
        for entry in self.entries():
            if entry.saved:
                entry.load(within(entry.name, tensors))

    def layout(self) -> tuple[int, ...]:
        """Identifies the buffers and their lengths: a captured step is valid while this stays the same."""
        tables = [entry.table for entry in self.entries() if entry.table is not None]
        lengths = [table.count for table in tables if not table.masked]
        groups = [entry.moves() for entry in self.entries() if entry.moves is not None]
        return (self.registry.loads, *(table.moves for table in tables), *lengths, *groups)

    # Describing

    def entries(self) -> Iterator[Entry]:
        """What was declared under this prefix, but for values."""
        return (entry for entry in list(self.registry.entries.values()) if entry.name.startswith(self.prefix))

    def of_kind(self, kind: Kind) -> list[Tensor]:
        """All stored tensors of a kind."""
        return [t for entry in self.entries() if entry.kind == kind and entry.stored for t in entry.read().values()]

    def contents(self, row: int | None) -> Contents:
        """What saved tensors are, and what happens to them when the class in `row` is removed or merged."""
        tables: dict[str, Combine] = {}
        kinds: dict[Kind, list[str]] = {"statistic": [], "sample": [], "moment": [], "parameter": []}
        for entry in self.entries():
            tables |= {join(entry.name, pattern): how for pattern, how in entry.combine.items()}
            kinds[entry.kind] += entry.tensors() if entry.kind != "moment" else [f"{entry.name}/*"]
        removed, merged = ([said(both[i], row) for both in self.registry.traces] for i in (0, 1))
        return Contents(
            tables,
            statistics=tuple(kinds["statistic"]),
            samples=tuple(kinds["sample"]),
            moments=tuple(kinds["moment"]),
            traces=tuple(dict.fromkeys(filter(None, removed))),
            merged=tuple(dict.fromkeys(filter(None, merged))),
            first_moment=self.registry.first_moment(),
            take_out=self.registry.take_out,
            put_together=self.registry.put_together,
            move_rows=self.registry.move_rows,
            refusal=self.registry.removal_refusal,
            merge_refusal=self.registry.combine_refusal,
        )
