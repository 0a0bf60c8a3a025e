"""Adam's moments of many parts, end to end, so that one operation updates all of them."""

from __future__ import annotations

from collections.abc import Container, Mapping

import torch
from torch import Tensor


class AdamMoments:
    """First and second moments by name, as pieces of two long tensors.

    Names that are used together lie side by side. They are laid out again when others come to be used together, or when
    one needs another shape; `moves` then grows, which invalidates captured steps.
    """

    def __init__(self) -> None:
        self._long: tuple[Tensor, Tensor] | None = None
        self._shapes: dict[str, torch.Size] = {}
        self.moves = 0

    def names(self) -> list[str]:
        return sorted(self._shapes)

    def shapes(self) -> dict[str, torch.Size]:
        return dict(self._shapes)

    def shape(self, name: str) -> torch.Size | None:
        return self._shapes.get(name)

    def of(self, name: str) -> tuple[Tensor, Tensor]:
        """Both moments of one part, as views."""
        mean, square = self.together([name])
        return mean.view(self._shapes[name]), square.view(self._shapes[name])

    def together(self, names: list[str]) -> tuple[Tensor, Tensor]:
        """Both moments of parts that lie side by side, end to end, as views."""
        assert self._long is not None
        mean, square = self._long
        start = self._start(names[0])
        end = start + sum(self._shapes[name].numel() for name in names)
        return mean[start:end], square[start:end]

    def lay(self, shapes: Mapping[str, torch.Size], like: Tensor) -> None:
        """Makes sure that parts of these shapes lie side by side in this order; what is new begins at zero."""
        if self._lies(list(shapes)) and all(self._shapes[name] == shape for name, shape in shapes.items()):
            return
        in_place = self._lies(list(shapes))
        wanted = {**self._shapes, **shapes} if in_place else {**shapes, **_without(self._shapes, shapes)}
        pieces: tuple[list[Tensor], list[Tensor]] = ([], [])
        for name, shape in wanted.items():
            before = self.of(name) if name in self._shapes else None
            for i in (0, 1):
                pieces[i].append(_fitted(None if before is None else before[i], shape, like).reshape(-1))
        self._long = torch.cat(pieces[0]), torch.cat(pieces[1])
        self._shapes = wanted
        self.moves += 1

    def set(self, name: str, mean: Tensor, square: Tensor) -> None:
        """Loads saved moments."""
        self.lay({name: mean.shape}, mean)
        for there, given in zip(self.of(name), (mean, square), strict=True):
            there.copy_(given)

    def clear(self) -> None:
        """Zero, in place: captured steps continue with the same tensors."""
        for tensor in self._long or ():
            tensor.zero_()

    def _start(self, name: str) -> int:
        start = 0
        for other, shape in self._shapes.items():
            if other == name:
                return start
            start += shape.numel()
        raise KeyError(name)

    def _lies(self, names: list[str]) -> bool:
        order = list(self._shapes)
        if names[0] not in self._shapes:
            return False
        first = order.index(names[0])
        return order[first : first + len(names)] == names


def _without(shapes: Mapping[str, torch.Size], names: Container[str]) -> dict[str, torch.Size]:
    return {name: shape for name, shape in shapes.items() if name not in names}


def _fitted(before: Tensor | None, shape: torch.Size, like: Tensor) -> Tensor:
    if before is not None and before.shape == shape:
        return before
    after = like.new_zeros(shape)
    if before is not None:
        common = min(len(before), len(after))  # a window may also become shorter, when nothing is in it
        after[:common] = before[:common]
    return after


LEAST = 64


class RowsInPlay:
    """Assigns a place to each row that is used, in the order in which they come.

    `rows` `[K]` holds the row at each place; places not taken yet hold row 0. `count` is, on the device, how many are
    taken. `reserve` must be called before `places`, from outside a graph: only there may buffers grow.
    """

    def __init__(self, device: torch.device) -> None:
        self.rows = torch.zeros(0, dtype=torch.long, device=device)
        self.count = torch.zeros((), dtype=torch.long, device=device)
        self._place_of = torch.full((0,), -1, dtype=torch.long, device=device)
        self._taken_at_most = 0

    @property
    def capacity(self) -> int:
        return len(self.rows)

    def reserve(self, new: int, length: int) -> bool:
        """Reserves capacity for up to `new` more rows of a table of `length` rows; True where a buffer was moved."""
        moved = len(self._place_of) < length
        if moved:
            self._place_of = _longer(self._place_of, max(length, 2 * len(self._place_of)), -1)
        self._taken_at_most = min(self._taken_at_most + new, length)
        if self._taken_at_most > self.capacity:
            self._taken_at_most = min(int(self.count) + new, length)  # the bound was loose: read the device, rarely
            # Capacity for many steps ahead, or the device would have to be read again at once; and more where it grows,
            # so that a few rows in play do not make it grow again when the device is next read.
            wanted, ample = (min(self._taken_at_most + steps * new, length) for steps in (15, 31))
            if self._taken_at_most > self.capacity or (self.rows.is_cuda and wanted > self.capacity):
                self.rows, moved = _longer(self.rows, max(ample, 2 * self.capacity, LEAST), 0), True
        return moved

    def places(self, rows: Tensor, valid: bool | Tensor = True) -> Tensor:
        """The place of each of `rows` `[R]`, which may hold a row several times; new ones get the next.

        In a step that is not `valid` no place is assigned, and places of new rows have no meaning.
        """
        ordered, order = rows.sort()
        known = self._place_of[ordered]
        new = known < 0
        first = torch.ones_like(new)
        first[1:] = ordered[1:] != ordered[:-1]
        fresh = (new & first & valid).cumsum(0)
        place = torch.where(new, (self.count + fresh - 1).clamp(min=0), known)  # the same for every copy of a row
        self._place_of[ordered] = torch.where(new & valid, place, known)
        self.rows[place] = torch.where(new & valid, ordered, self.rows[place])
        self.count += fresh[-1] if len(fresh) else 0
        return torch.empty_like(place).scatter_(0, order, place)

    def is_taken(self) -> Tensor:
        """Which places have a row, bool `[K]`."""
        return torch.arange(self.capacity, device=self.rows.device) < self.count

    def clear(self) -> None:
        """Clears the rows in place: captured steps continue with the same buffers."""
        self.rows.zero_()
        self.count.zero_()
        self._place_of.fill_(-1)
        self._taken_at_most = 0

    def taken(self) -> Tensor:
        """The rows that have a place, in its order."""
        return self.rows[: int(self.count)]

    def load(self, rows: Tensor) -> None:
        """Loads what `taken` returned."""
        self.rows = _longer(rows, max(len(rows), LEAST), 0)
        self.count.fill_(len(rows))
        self._taken_at_most = len(rows)
        self._place_of = rows.new_full((int(rows.max()) + 1 if len(rows) else 0,), -1)
        self._place_of[rows] = torch.arange(len(rows), device=rows.device)


def _longer(buffer: Tensor, length: int, filling: int) -> Tensor:
    grown = buffer.new_full((length,), filling)
    grown[: len(buffer)] = buffer
    return grown
