"""Tables with one row a class, in buffers that double, so that a step's cost does not depend on their length."""

from __future__ import annotations

import torch
from torch import Tensor


class RowTable:
    """`rows` is the table `[count, *shape]`; `append` adds to its end.

    `buffer` `[room, *shape]` is where the rows lie, with zeros behind them. Its length changes seldom: what works on
    all of it and masks what is behind `count` has a fixed shape. `moves` grows whenever it is replaced by another.
    """

    def __init__(self, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype, room: int = 0) -> None:
        self.buffer = torch.zeros(room, *shape, device=device, dtype=dtype)
        self.count = 0
        self.moves = 0

    @property
    def rows(self) -> Tensor:
        return self.buffer[: self.count]

    def append(self, rows: Tensor) -> None:
        total = self.count + len(rows)
        self._make_room(total)
        self.buffer[self.count : total] = rows.to(self.buffer)
        self.count = total

    def replace(self, rows: Tensor) -> None:
        """Takes over a whole table, as when a saved state is loaded."""
        if rows.shape[1:] != self.buffer.shape[1:]:
            self.buffer, self.count = self.buffer.new_zeros(len(self.buffer), *rows.shape[1:]), 0
            self.moves += 1
        self._make_room(len(rows))
        self.buffer[: len(rows)] = rows.to(self.buffer)
        self.buffer[len(rows) : self.count] = 0
        self.count = len(rows)

    def add(self, rows: Tensor, changes: Tensor, counts: Tensor) -> None:
        """Adds those of changes `[B, ...]` that count, bool `[B]`, to their rows `[B]`.

        Of changes to one row one at most may count: then the order in which a GPU adds them does not matter.
        """
        counts = counts.view(-1, *[1] * (changes.ndim - 1))
        self.rows.index_add_(0, rows, torch.where(counts, changes, 0).to(self.buffer.dtype))

    def _make_room(self, total: int) -> None:
        room = len(self.buffer)
        while room < total:  # by doubling, so that it depends on `total` alone and not on how that was reached
            room = max(1, 2 * room)
        if room > len(self.buffer):
            grown = self.buffer.new_zeros(room, *self.buffer.shape[1:])
            grown[: self.count] = self.rows
            self.buffer = grown
            self.moves += 1
