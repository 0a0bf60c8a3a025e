"""Tables with one row a class, in buffers that double, so that a step's cost does not depend on their length."""

from __future__ import annotations

import torch
from torch import Tensor


class RowTable:
    """`rows` is the table `[count, *shape]`; `append` adds to its end."""

    def __init__(self, shape: tuple[int, ...], device: torch.device, dtype: torch.dtype) -> None:
        self._buffer = torch.empty(0, *shape, device=device, dtype=dtype)
        self.count = 0

    @property
    def rows(self) -> Tensor:
        return self._buffer[: self.count]

    def append(self, rows: Tensor) -> None:
        total = self.count + len(rows)
        if total > len(self._buffer):
            grown = self._buffer.new_empty(max(total, 2 * len(self._buffer)), *self._buffer.shape[1:])
            grown[: self.count] = self.rows
            self._buffer = grown
        self._buffer[self.count : total] = rows.to(self._buffer)
        self.count = total

    def replace(self, rows: Tensor) -> None:
        """Takes over a whole table, as when a saved state is loaded."""
        self._buffer, self.count = rows.to(self._buffer), len(rows)
