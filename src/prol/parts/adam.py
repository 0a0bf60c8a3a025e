"""Adam over whole tensors, and over those rows of a table that are in play.

Rows that never had a gradient since the last reset have zero moments, so dense Adam would not move them: leaving them
out gives the same result at a cost that does not depend on the table's length. Nothing is read back from the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prol.parts.rows_in_play import RowsInPlay

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Part:
    """A trained tensor in one step: where it is stored, the leaf that stands for it, and which rows that leaf holds.

    With `settled`, each row comes once and keeps its position in the leaf until Adam is reset, and a row of -1 says
    that a position is empty. Otherwise any rows may come in any order, and several times.
    """

    home: Tensor
    leaf: Tensor
    rows: Tensor | None = None
    settled: bool = False

    @classmethod
    def whole(cls, home: Tensor) -> Part:
        return cls(home, home.detach().requires_grad_())

    @classmethod
    def of_rows(cls, home: Tensor, rows: Tensor, settled: bool = False) -> Part:
        """`rows` `[R]` of a table."""
        return cls(home, home[rows.clamp(min=0) if settled else rows].detach().requires_grad_(), rows, settled)


def part_gradients(loss: Tensor, parts: Mapping[str, Part]) -> dict[str, Tensor]:
    """The loss's gradient with respect to each part's leaf; zero for parts it does not depend on."""
    leaves = [part.leaf for part in parts.values()]
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for name, leaf, gradient in zip(parts, leaves, found, strict=True)
    }


def gathered_rows(parts: Mapping[str, Part]) -> dict[str, Tensor]:
    """The rows of those parts in which a row may come several times."""
    return {name: part.rows for name, part in parts.items() if part.rows is not None and not part.settled}


def adam_change(
    gradient: Tensor, mean: Tensor, square: Tensor, step: Tensor, lr: float | Tensor, valid: Tensor | None = None
) -> Tensor:
    """Moves both moments on in place and returns what to subtract from the parameter; nothing of it if not `valid`."""
    weights: tuple[float, float] | tuple[Tensor, Tensor] = (1 - BETA1, 1 - BETA2)
    if valid is not None:
        gradient = torch.where(valid, gradient, 0)
        weights = valid.to(mean) * (1 - BETA1), valid.to(mean) * (1 - BETA2)
        step, lr = step.clamp(min=1), lr * valid.double()
    mean.lerp_(gradient, weights[0])
    square.lerp_(gradient.square(), weights[1])
    denominator = square.sqrt().div_((1 - BETA2**step).sqrt()).add_(EPSILON)
    return mean.div(denominator).mul_(lr / (1 - BETA1**step))


class Adam:
    """One step counter, and moments by name. `begin_step` once a step, then `update` each trained part."""

    def __init__(self, device: torch.device | None = None) -> None:
        self._device = device or torch.device("cpu")
        self._steps = torch.zeros((), dtype=torch.float64, device=self._device)  # float32 has no room for 1 - 0.999**t
        self._moments: dict[str, tuple[Tensor, Tensor]] = {}
        self._in_play: dict[str, RowsInPlay] = {}
        self._valid: Tensor | None = None
        self.moves = 0
        """Grows whenever a buffer is replaced by another: what was captured before is of no use then."""

    @property
    def step(self) -> int:
        """How many steps were begun since the last reset."""
        return int(self._steps)

    def reset(self) -> None:
        """Forgets everything, in place: whatever was captured goes on with the same buffers."""
        self._steps.zero_()
        for moments in self._moments.values():
            for moment in moments:
                moment.zero_()
        for in_play in self._in_play.values():
            in_play.clear()

    def begin_step(self, valid: Tensor | None = None) -> None:
        """With `valid`, a bool scalar on the device, a step that is not valid counts and moves nothing."""
        self._steps += 1 if valid is None else valid
        self._valid = valid

    def make_room(self, name: str, part: Part) -> None:
        """Makes the buffers that `update` will need; to be called before each step that is replayed from a graph."""
        if part.rows is None or part.settled:
            shape = part.leaf.shape
        else:
            in_play = self._in_play.setdefault(name, RowsInPlay(part.home.device))
            self.moves += in_play.room_for(len(part.rows), len(part.home))
            shape = torch.Size((in_play.room, *part.leaf.shape[1:]))
        if name not in self._moments or self._moments[name][0].shape != shape:
            old, new = self._moments.get(name, ()), (part.home.new_zeros(shape), part.home.new_zeros(shape))
            for before, after in zip(old, new, strict=False):
                kept = min(len(before), len(after))  # a window may also become shorter, when nothing is in it
                after[:kept] = before[:kept]
            self._moments[name] = new
            self.moves += 1

    @torch.no_grad()
    def update(self, name: str, part: Part, gradient: Tensor, lr: float | Tensor) -> None:
        """Moves the stored tensor, or those of its rows that are in play, in place."""
        if not (gradient.is_cuda and torch.cuda.is_current_stream_capturing()):
            self.make_room(name, part)
        if part.rows is None:
            part.home.sub_(self._change(name, gradient, lr))
        elif part.settled:
            _subtract(part.home, part.rows, self._change(name, gradient, lr), part.rows >= 0)
        else:
            in_play = self._in_play[name]
            places = in_play.places(part.rows, True if self._valid is None else self._valid)
            everything = _summed(gradient, places, in_play.room)
            _subtract(part.home, in_play.rows, self._change(name, everything, lr), in_play.is_taken())

    @torch.no_grad()
    def update_together(self, name: str, parts: list[Part], gradients: list[Tensor], lr: float | Tensor) -> None:
        """The same for many whole tensors at one rate, as one long one: a few operations instead of a few for each."""
        if not parts:
            return
        gradient = torch.cat([g.reshape(-1).to(part.home) for g, part in zip(gradients, parts, strict=True)])
        if name in self._moments and self._moments[name][0].shape != gradient.shape:
            raise ValueError(f"tensors that move together, {name!r}, must stay the same: their moments lie end to end")
        if not (gradient.is_cuda and torch.cuda.is_current_stream_capturing()):
            self.make_room(name, Part(gradient, gradient))
        homes = [part.home for part in parts]
        pieces = torch.split(self._change(name, gradient, lr), [home.numel() for home in homes])
        torch._foreach_sub_(homes, [piece.view_as(home) for piece, home in zip(pieces, homes, strict=True)])

    def _change(self, name: str, gradient: Tensor, lr: float | Tensor) -> Tensor:
        return adam_change(gradient, *self._moments[name], self._steps, lr, self._valid)

    def rows_in_play(self, name: str) -> Tensor | None:
        """Rows of a table that had a gradient since the last reset, filled up with row 0 to a fixed length."""
        return self._in_play[name].rows if name in self._in_play else None

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Moments that are not zero, which is all that need be known: others are as good as never made."""
        tensors: dict[str, Tensor] = {}
        for name, (mean, square) in sorted(self._moments.items()):
            if name in self._in_play:
                rows = self._in_play[name].taken()
                if len(rows):
                    tensors |= {f"{name}/rows": rows, f"{name}/mean": mean[: len(rows)]}
                    tensors[f"{name}/square"] = square[: len(rows)]
            elif bool(square.any()) or bool(mean.any()):
                tensors |= {f"{name}/mean": mean, f"{name}/square": square}
        return tensors, {"step": self.step}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self._moments, self._in_play = {}, {}
        self._steps.fill_(meta["step"])
        self.moves += 1
        for name in sorted({key.rpartition("/")[0] for key in tensors}):
            saved = tensors[f"{name}/mean"], tensors[f"{name}/square"]
            if f"{name}/rows" in tensors:
                rows = tensors[f"{name}/rows"]
                in_play = self._in_play[name] = RowsInPlay(rows.device)
                in_play.load(rows)
                padding = saved[0].new_zeros(in_play.room - len(rows), *saved[0].shape[1:])
                saved = torch.cat([saved[0], padding]), torch.cat([saved[1], padding])
            self._moments[name] = saved


def _summed(gradient: Tensor, places: Tensor, room: int) -> Tensor:
    """The sum of the gradients `[R, ...]` at each of `room` places; to the last bit the same for any room."""
    if not gradient.is_cuda:
        return gradient.new_zeros(room, *gradient.shape[1:]).index_add_(0, places, gradient)
    # A product with the members of each place: on a GPU, adding row by row would have no fixed order.
    flat = gradient.reshape(len(gradient), gradient.shape[1:].numel())
    taken = places == torch.arange(room, device=places.device).unsqueeze(1)
    return (taken.to(flat) @ flat).view(room, *gradient.shape[1:])


def _subtract(home: Tensor, rows: Tensor, change: Tensor, valid: Tensor) -> None:
    """Moves rows `[K]` that are `valid`, each of which comes once; zeros added to row 0 for the others do no harm."""
    change = torch.where(valid.view(-1, *[1] * (change.ndim - 1)), change, 0)
    home.index_add_(0, rows.clamp(min=0), change, alpha=-1)
