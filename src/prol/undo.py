"""Rollback and undo: a chunk that failed is rolled back, and the last chunk can be undone.

Both restore a `Record` of what was there before the chunk. For a rollback it is nearly empty, since an update checks
before it writes. To undo a chunk that succeeded, it also holds copies of everything that the chunk may overwrite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy

import torch
from torch import Tensor

from prol.tables import Amount, Entry, Record, Registry, join

MOST_BYTES = 200_000_000
"""The largest record of a chunk that is stored to undo it."""

OFF = "undo is off: call enable_undo() before the chunk is learnt"
NO_CHUNK = "there is nothing to undo: no chunk was learnt since enable_undo() was called"
UNDONE = "there is nothing to undo: only the last chunk can be undone, and it was"
FAILED = "there is nothing to undo: the last update failed and was rolled back, and only the last chunk can be undone"
CHANGED = (
    "there is nothing to undo: a boundary, a change of classes, unlearn and load_state cannot be undone, "
    "nor can a chunk learnt before one of them"
)


def open_record(registry: Registry) -> Record:
    """A record of lengths and values; nothing else is copied unless it is to be overwritten."""
    entries = registry.entries.values()
    registry.record = Record(
        registry.classes,
        tuple(registry.entries),
        {entry.name: entry.table.count for entry in entries if entry.table is not None},
        {name: deepcopy(value.read()) for name, value in registry.values.items()},
        {entry.name: entry.measure() for entry in entries if entry.measure is not None},
    )
    return registry.record


def roll_back(registry: Registry, record: Record) -> None:
    """Restores everything as it was when the record was opened; loaders may take over the copies in it."""
    registry.record, registry.classes = None, record.classes
    registry.loads += 1
    for name in [name for name in registry.entries if name not in record.entries]:
        del registry.entries[name]
    registry.load_values(record.values)
    for entry in list(registry.entries.values()):
        if entry.name in record.copies:
            entry.load(record.copies[entry.name])
        if entry.table is not None:  # also of a copy, which may have been made after the table had grown
            entry.table.truncate(record.lengths[entry.name])
            if entry.name in record.rows:
                places, rows = record.rows[entry.name]
                entry.table.rows[places] = rows
        elif entry.name in record.shortenings and entry.name not in record.copies:
            record.shortenings[entry.name]()
    for refresh in registry.after_load:
        refresh()


class UndoRecord:
    """Copies of what the last chunk overwrote: off until enabled, in memory only, on the learner's device, never saved.

    Tensors that an update may overwrite are copied before each chunk into buffers that stay, so that nothing is
    allocated again; of tables in which only rows of the chunk's classes change, those rows alone.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._buffers: dict[str, Tensor] = {}
        self._last: tuple[Record, Tensor] | None = None
        self._reason = OFF

    @property
    def enabled(self) -> bool:
        return self._reason != OFF

    def enable(self, enabled: bool) -> None:
        if not enabled:
            self.forget(OFF)
        elif (size := self.size([])) > MOST_BYTES:
            raise ValueError(_too_large(size))
        elif not self.enabled:
            self.forget(NO_CHUNK)

    @property
    def has_chunk(self) -> bool:
        """Whether there is a chunk to undo."""
        return self._last is not None

    @property
    def bytes(self) -> int:
        """Memory that the record takes now."""
        return Amount.of(*self.tensors().values()).bytes

    def tensors(self) -> dict[str, Tensor]:
        """Copies that it holds, by the names of what they are copies of; rows of a chunk alone are among them."""
        if self._last is None:
            return dict(self._buffers)
        record, random = self._last
        return self._buffers | {name: rows for name, (_, rows) in record.rows.items()} | {"random": random}

    def size(self, rows: Sequence[int] = ()) -> int:
        """Bytes of the record of a chunk of these known class rows, if it was opened now."""
        return self._size(self._overwritten(), rows)

    def fill(self, record: Record, rows: Sequence[int], random: Tensor) -> None:
        """Copies what the coming chunk of these known class rows may overwrite, and the random state."""
        if not self.enabled:
            return
        overwritten = self._overwritten()
        if (size := self._size(overwritten, rows)) > MOST_BYTES:
            self.forget(_too_large(size))
            return
        self._buffers = {name: buffer for name, buffer in self._buffers.items() if name in _names(overwritten)}
        for entry, tensors in overwritten:
            record.copies[entry.name] = {inner: self._copy(entry, inner, tensor) for inner, tensor in tensors.items()}
        for entry in self._registry.entries.values():
            if entry.table is not None and entry.writes == "chunk":
                places = torch.tensor(sorted(set(rows)), dtype=torch.int64, device=entry.table.buffer.device)
                record.rows[entry.name] = places, entry.table.rows[places]
        self._last = record, random

    def forget(self, reason: str = CHANGED) -> None:
        """Nothing can be undone until the next chunk, for this reason; copies are freed."""
        if self.enabled or reason in (OFF, NO_CHUNK):
            self._buffers, self._last, self._reason = {}, None, reason

    def last(self) -> tuple[Record, Tensor]:
        """The record of the last chunk, and the random state before it."""
        if self._last is None:
            raise ValueError(self._reason)
        return self._last

    def _overwritten(self) -> list[tuple[Entry, Mapping[str, Tensor]]]:
        entries = list(self._registry.entries.values())
        return [(entry, entry.read()) for entry in entries if entry.saved and entry.writes == "all"]

    def _size(self, overwritten: list[tuple[Entry, Mapping[str, Tensor]]], rows: Sequence[int]) -> int:
        whole = sum(_capacity(entry, t) * t.element_size() for entry, tensors in overwritten for t in tensors.values())
        tables = [entry.table for entry in self._registry.entries.values() if entry.writes == "chunk" and entry.table]
        return whole + sum(len(set(rows)) * Amount.of(table.buffer[:1]).bytes for table in tables)

    def _copy(self, entry: Entry, inner: str, tensor: Tensor) -> Tensor:
        """A copy in a buffer that has as much capacity as the table, so that it grows as seldom."""
        name, capacity = join(entry.name, inner), _capacity(entry, tensor)
        buffer = self._buffers.get(name)
        kind = tensor.dtype, tensor.device
        if buffer is None or buffer.numel() < capacity or (buffer.dtype, buffer.device) != kind:
            buffer = self._buffers[name] = torch.empty(capacity, dtype=tensor.dtype, device=tensor.device)
        return buffer[: tensor.numel()].view(tensor.shape).copy_(tensor.detach())


def _capacity(entry: Entry, tensor: Tensor) -> int:
    return tensor.numel() if entry.table is None else entry.table.buffer.numel()


def _names(overwritten: list[tuple[Entry, Mapping[str, Tensor]]]) -> set[str]:
    return {join(entry.name, inner) for entry, tensors in overwritten for inner in tensors}


def _too_large(size: int) -> str:
    return (
        f"undo is refused: its record would take {size / 1e6:.0f} MB of memory, and at most {MOST_BYTES / 1e6:.0f} MB "
        "are allowed; use fewer features or a smaller budget or memory, or learn without undo"
    )
