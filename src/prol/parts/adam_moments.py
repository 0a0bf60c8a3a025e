"""Adam's moments of many parts, end to end, so that one operation moves all of them on."""

from __future__ import annotations

from collections.abc import Container, Mapping

import torch
from torch import Tensor


class AdamMoments:
    """First and second moments by name, as pieces of two long tensors.

    Names that are used together lie side by side. They are laid out anew when others come to be used together, or when
    one needs another shape; `moves` then grows: what was captured before is of no use.
    """

    def __init__(self) -> None:
        self._long: tuple[Tensor, Tensor] | None = None
        self._shapes: dict[str, torch.Size] = {}
        self.moves = 0

    def names(self) -> list[str]:
        return sorted(self._shapes)

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
        """Takes over saved moments."""
        self.lay({name: mean.shape}, mean)
        for there, given in zip(self.of(name), (mean, square), strict=True):
            there.copy_(given)

    def clear(self) -> None:
        """Zero, in place: whatever was captured goes on with the same tensors."""
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
        kept = min(len(before), len(after))  # a window may also become shorter, when nothing is in it
        after[:kept] = before[:kept]
    return after
