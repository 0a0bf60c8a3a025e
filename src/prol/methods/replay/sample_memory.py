"""Stored samples: a bounded memory of images with their classes, and what else a method stores of each.

The host decides which sample goes where, before the step; images and payload are on the device and written by the step
itself, which thus has fixed shapes and waits for nothing. The host may learn late that a step wrote nothing: so class
rows are on the device too, written with the images, to be read again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from prol.classes import Tensors
from prol.state import State
from prol.tables import Amount

EMPTY = -1


@dataclass(frozen=True)
class Places:
    """What the host knows: the class row in each slot `[capacity]`, EMPTY where there is none, and samples seen."""

    rows: Tensor
    filled: int = 0
    seen: int = 0


Choose = Callable[[Places, int, torch.Generator], int | None]
"""The slot for one more sample of a class row; None where it is not stored."""


def reservoir(places: Places, row: int, random: torch.Generator) -> int | None:  # noqa: ARG001
    """Every sample seen so far is stored with the same probability (Vitter 1985)."""
    if places.filled < len(places.rows):
        return places.filled
    slot = int(torch.rand((), generator=random, dtype=torch.float64) * (places.seen + 1))
    return slot if slot < len(places.rows) else None


def greedy_balance(places: Places, row: int, random: torch.Generator) -> int | None:
    """As many of each class as there is room for: a class with too few takes from the largest one, at random."""
    if places.filled < len(places.rows):
        return places.filled
    counts = torch.bincount(places.rows)
    largest = int(counts.argmax())
    own = int(counts[row]) if row < len(counts) else 0
    if own >= int(counts[largest]):
        return None
    members = (places.rows == largest).nonzero().flatten()
    return int(members[int(torch.randint(len(members), (), generator=random))])


@dataclass(frozen=True)
class Insertion:
    """Where the samples of one chunk go, `[B]`, and the memory's places afterwards.

    `named` `[B]` are the slots as they were chosen: one that was chosen again later in the chunk is there twice.
    """

    slots: Tensor
    named: Tensor
    after: Places


class SampleMemory:
    """Images uint8 `[capacity + 1, 3, S, S]` and payload on the device; the last slot takes what is not stored.

    All of it is allocated at the start: a memory does not grow.
    """

    def __init__(self, state: State, capacity: int, size: int, choose: Choose = reservoir) -> None:
        self.capacity, self.choose, self._state, device = capacity, choose, state, state.device
        self.places = Places(torch.full((capacity,), EMPTY))
        self.images = torch.zeros(capacity + 1, 3, size, size, dtype=torch.uint8, device=device)
        self.rows = torch.full((capacity + 1,), EMPTY, device=device)
        self.seen = torch.zeros((), dtype=torch.int64, device=device)
        self.payload: dict[str, Tensor] = {}
        state.group("memory", self._read, self._load, kind="sample")
        state.value("memory/filled", read=lambda: self.places.filled, load=self._load_filled)
        state.value("memory/met", read=lambda: self.places.seen, load=self._load_seen)
        state.count_samples_by(self.amount)
        state.on_remove(remove_samples)
        state.on_combine(combine_samples)
        state.trace(removed="which of the other images are stored was drawn while it was there")

    def __len__(self) -> int:
        return self.places.filled

    def add_payload(self, name: str, dtype: torch.dtype) -> None:
        """A number to be stored of each sample besides its image."""
        self.payload[name] = torch.zeros(self.capacity + 1, dtype=dtype, device=self.images.device)
        self._state.tensor(f"memory/{name}", self.payload[name][:-1], kind="sample")

    def plan(self, rows: Sequence[int], random: torch.Generator) -> Insertion:
        """Chooses a slot for each sample of a chunk, one after the other: the same for any size of chunk."""
        places = replace(self.places, rows=self.places.rows.clone())
        slots: list[int] = []
        named: list[int] = []
        for row in rows:
            slot = self.choose(places, row, random)
            places = replace(places, seen=places.seen + 1)
            named.append(self.capacity if slot is None else slot)
            if slot is None:
                slots.append(self.capacity)
                continue
            slots = [self.capacity if slot == earlier else earlier for earlier in slots]
            slots.append(slot)
            places.rows[slot] = row
            places = replace(places, filled=max(places.filled, slot + 1))
        return Insertion(torch.tensor(slots), torch.tensor(named), places)

    def write(self, slots: Tensor, rows: Tensor, images: Tensor, payload: Mapping[str, Tensor], valid: Tensor) -> None:
        """On the device: puts a chunk's images, uint8, and class rows into slots `[B]`; nothing where not `valid`."""
        slots = torch.where(valid, slots, self.capacity)
        self.images.index_copy_(0, slots, images)
        self.images[self.capacity].zero_()
        self.rows.index_copy_(0, slots, rows)
        self._written(len(images), valid)
        for name, values in payload.items():
            self.payload[name].index_copy_(0, slots, values.to(self.payload[name]))

    def move(
        self,
        slots: Tensor,
        source: Tensor,
        rows: Tensor,
        images: Tensor,
        payload: Mapping[str, Tensor],
        valid: Tensor,
    ) -> None:
        """On the device: writes slots `[n]` with what `source` `[n]` names; nothing where `valid`, bool, is false.

        A source is a slot as it is before, or `capacity + 1 + i` for sample i of the chunk, whose class rows and images
        are given. `payload` is all there is.
        """
        slots = torch.where(valid, slots, self.capacity)
        inside, new = source.clamp(max=self.capacity), (source - self.capacity - 1).clamp(min=0)
        is_new = source > self.capacity
        payloads = [(self.payload[name], payload[name]) for name in self.payload]
        for home, given in [(self.images, images), (self.rows, rows), *payloads]:
            chosen = is_new.view(-1, *[1] * (home.ndim - 1))
            home.index_copy_(0, slots, torch.where(chosen, given[new].to(home), home[inside]))
            home[self.capacity].zero_()
        self._written(len(images), valid)

    def _written(self, count: int, valid: Tensor) -> None:
        self.rows[self.capacity].fill_(EMPTY)
        self.seen += count * valid

    def commit(self, insertion: Insertion) -> None:
        """On the host: the step that wrote has been taken."""
        self.places = insertion.after

    def reread(self) -> None:
        """On the host: what the device holds, after steps that the host relied on and that wrote nothing.

        Slots that such a step left empty are closed: what lies behind them moves up, in place.
        """
        rows = self.rows[:-1].cpu()
        there = (rows != EMPTY).nonzero().flatten()
        if len(there) and int(there[-1]) >= len(there):
            stored = there.to(self.rows.device)
            for home, fill in [(self.rows, EMPTY), (self.images, 0), *((one, 0) for one in self.payload.values())]:
                home[: len(stored)] = home[stored]
                home[len(stored) :] = fill
            rows = self.rows[:-1].cpu()
        self.places = Places(rows, len(there), int(self.seen))

    def draw(self, count: int, random: torch.Generator, among: Tensor | None = None) -> Tensor:
        """Slots `[n]` of different samples, as many as there are up to `count`; `among` are those to choose from."""
        known = self.places.filled if among is None else len(among)
        picked = torch.randperm(known, generator=random)[:count]
        return picked if among is None else among[picked]

    def rows_in(self, slots: Tensor) -> Tensor:
        """Class rows of what is in slots, both on the host."""
        return self.places.rows[slots]

    def amount(self) -> Amount:
        """How many samples are stored, and the bytes of their images and payload."""
        one = sum(Amount.of(tensor[0]).bytes for tensor in (self.images, *self.payload.values()))
        return Amount(self.places.filled, self.places.filled * one)

    def _read(self) -> dict[str, Tensor]:
        return {"images": self.images[:-1], "rows": self.places.rows}

    def _load(self, saved: Mapping[str, Tensor]) -> None:
        """Loads in place: captured steps stay valid."""
        if len(saved["images"]) != self.capacity:
            raise ValueError(f"a memory of {len(saved['images'])} samples was saved, this one has {self.capacity}")
        if saved["images"].shape[1:] != self.images.shape[1:] or saved["rows"].shape != (self.capacity,):
            shapes = list(saved["images"].shape), list(saved["rows"].shape)
            raise ValueError(f"a memory of images and rows of shapes {shapes[0]} and {shapes[1]} was saved")
        self.images[:-1] = saved["images"]
        self.rows[:-1] = saved["rows"].to(self.rows.device)
        self.places = replace(self.places, rows=saved["rows"].cpu())

    def _load_filled(self, filled: int) -> None:
        if not 0 <= filled <= self.capacity:
            raise ValueError(f"a memory with {filled} samples was saved, this one has room for {self.capacity}")
        self.places = replace(self.places, filled=filled)

    def _load_seen(self, seen: int) -> None:
        self.places = replace(self.places, seen=seen)
        self.seen.fill_(seen)


def remove_samples(tensors: Tensors, values: dict[str, Any], row: int) -> str:
    """Removes the samples of a class from a saved memory, in place; says how many there were.

    The others move up, and rows behind the class's own move down by one.
    """
    rows = tensors["memory/rows"]
    others = ((rows != row) & (rows != EMPTY)).nonzero().flatten()
    gone = int((rows == row).sum())
    for name in [name for name in tensors if name.startswith("memory/")]:
        moved = torch.zeros_like(tensors[name])
        moved[: len(others)] = tensors[name][others.to(tensors[name].device)]
        tensors[name] = moved
    tensors["memory/rows"][len(others) :] = EMPTY
    tensors["memory/rows"] -= (tensors["memory/rows"] > row).long()
    values["memory"]["filled"] = len(others)
    return f"the {gone} images stored of it"


def combine_samples(tensors: Tensors, values: dict[str, Any], source: int, into: int) -> None:  # noqa: ARG001
    """Samples of one class become those of another in a saved memory, in place."""
    rows = tensors["memory/rows"].clone()
    rows[rows == source] = into
    tensors["memory/rows"] = rows - (rows > source).long()
