"""Which rows of a long table are being trained, in a buffer whose size does not depend on the table's length.

Every operation has a fixed shape and nothing is read back from the device, so that a step can be captured as one graph.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 64


class RowsInPlay:
    """Gives each row that is met a place of its own, in the order in which they come.

    `rows` `[K]` holds the row at each place; places not taken yet say row 0. `count` says on the device how many are
    taken. `room_for` must be called before `places`, from outside a graph: only there may buffers grow.
    """

    def __init__(self, device: torch.device) -> None:
        self.rows = torch.zeros(0, dtype=torch.long, device=device)
        self.count = torch.zeros((), dtype=torch.long, device=device)
        self._place_of = torch.full((0,), -1, dtype=torch.long, device=device)
        self._taken_at_most = 0

    @property
    def room(self) -> int:
        return len(self.rows)

    def room_for(self, new: int, length: int) -> bool:
        """Makes room for up to `new` rows more of a table of `length` rows; True where a buffer had to be moved."""
        moved = len(self._place_of) < length
        if moved:
            self._place_of = _longer(self._place_of, max(length, 2 * len(self._place_of)), -1)
        self._taken_at_most = min(self._taken_at_most + new, length)
        if self._taken_at_most > self.room:
            self._taken_at_most = min(int(self.count) + new, length)  # the bound was loose: ask the device, rarely
            # Room for many steps ahead, or the device would have to be asked again at once; and more where it grows,
            # so that a few rows in play do not make it grow again when the device is next asked.
            wanted, ample = (min(self._taken_at_most + steps * new, length) for steps in (15, 31))
            if self._taken_at_most > self.room or (self.rows.is_cuda and wanted > self.room):
                self.rows, moved = _longer(self.rows, max(ample, 2 * self.room, LEAST), 0), True
        return moved

    def places(self, rows: Tensor, valid: bool | Tensor = True) -> Tensor:
        """The place of each of `rows` `[R]`, which may hold a row several times; unmet ones are given the next.

        In a step that is not `valid` none is given, and what is said of unmet rows has no meaning.
        """
        ordered, order = rows.sort()
        known = self._place_of[ordered]
        unmet = known < 0
        first = torch.ones_like(unmet)
        first[1:] = ordered[1:] != ordered[:-1]
        fresh = (unmet & first & valid).cumsum(0)
        place = torch.where(unmet, (self.count + fresh - 1).clamp(min=0), known)  # the same for every copy of a row
        self._place_of[ordered] = torch.where(unmet & valid, place, known)
        self.rows[place] = torch.where(unmet & valid, ordered, self.rows[place])
        self.count += fresh[-1] if len(fresh) else 0
        return torch.empty_like(place).scatter_(0, order, place)

    def is_taken(self) -> Tensor:
        """Which places have a row, bool `[K]`."""
        return torch.arange(self.room, device=self.rows.device) < self.count

    def clear(self) -> None:
        """In place: whatever was captured goes on with the same buffers."""
        self.rows.zero_()
        self.count.zero_()
        self._place_of.fill_(-1)
        self._taken_at_most = 0

    def taken(self) -> Tensor:
        """The rows that have a place, in its order."""
        return self.rows[: int(self.count)]

    def load(self, rows: Tensor) -> None:
        """Takes over what `taken` gave."""
        self.rows = _longer(rows, max(len(rows), LEAST), 0)
        self.count.fill_(len(rows))
        self._taken_at_most = len(rows)
        self._place_of = rows.new_full((int(rows.max()) + 1 if len(rows) else 0,), -1)
        self._place_of[rows] = torch.arange(len(rows), device=rows.device)


def _longer(buffer: Tensor, length: int, filling: int) -> Tensor:
    grown = buffer.new_full((length,), filling)
    grown[: len(buffer)] = buffer
    return grown
