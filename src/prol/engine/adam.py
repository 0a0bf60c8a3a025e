"""Adam over whole tensors, and over those rows of a table that are in play.

Rows that never had a gradient since the last reset have zero moments, so dense Adam would not move them: leaving them
out has the same result at a cost that does not depend on the table's length. Nothing is read back from the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from prol.classes import Combine
from prol.engine.adam_tables import LEAST, AdamMoments, RowsInPlay
from prol.state import State

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Part:
    """A trained tensor in one step: where it is stored, the leaf that represents it, and which rows that leaf holds.

    With `fixed`, each row occurs once and has the same position in the leaf until Adam is reset, and a row of -1
    marks an empty position. Otherwise rows may come in any order, and several times.
    """

    home: Tensor
    leaf: Tensor
    rows: Tensor | None = None
    fixed: bool = False

    @classmethod
    def whole(cls, home: Tensor) -> Part:
        return cls(home, home.detach().requires_grad_())

    @classmethod
    def of_rows(cls, home: Tensor, rows: Tensor, fixed: bool = False) -> Part:
        """`rows` `[R]` of a table."""
        return cls(home, home[rows.clamp(min=0) if fixed else rows].detach().requires_grad_(), rows, fixed)


def refuse_loss(steps: int, lr: float) -> NoReturn:
    """For a loss that would turn every weight into NaN."""
    raise ValueError(f"the loss is not finite at step {steps} of this task; nothing was learnt from it: lower lr={lr}")


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
    return {name: part.rows for name, part in parts.items() if part.rows is not None and not part.fixed}


@dataclass(frozen=True)
class Corrections:
    """Factors that depend on the step's number and validity only: computed once, used for all parts."""

    weights: tuple[float, float] | tuple[Tensor, Tensor]
    """Weights of the new gradient in both moments."""
    mean: Tensor
    """What the change is multiplied with: the first moments seen so far are a share of what they will be."""
    square: Tensor
    """What the root of the second moment is divided by, for the same reason."""
    valid: Tensor | None = None

    @classmethod
    def at(cls, step: Tensor, valid: Tensor | None, dtype: torch.dtype, beta2: float = BETA2) -> Corrections:
        if valid is None:
            return cls((1 - BETA1, 1 - beta2), 1 / (1 - BETA1**step), (1 - beta2**step).sqrt())
        counts, step = valid.to(dtype), step.clamp(min=1)
        weights = counts * (1 - BETA1), counts * (1 - beta2)
        return cls(weights, valid / (1 - BETA1**step), (1 - beta2**step).sqrt(), valid)


def adam_change(gradient: Tensor, mean: Tensor, square: Tensor, now: Corrections, lr: float | Tensor) -> Tensor:
    """Updates both moments in place and returns what to subtract from the parameter; zero in an invalid step."""
    if now.valid is not None:
        gradient = torch.where(now.valid, gradient, 0)
    mean.lerp_(gradient, now.weights[0])
    square.lerp_(gradient.square(), now.weights[1])
    return mean.div(square.sqrt().div_(now.square).add_(EPSILON)).mul_(lr * now.mean)


class Adam:
    """One step counter, and moments by name. `begin_step` once per step, then `update_all` trained parts of one rate.

    Args:
        state: where its moments are declared, under `name`.
        per_class: names of parts with one row per class, and what moments of two merged classes become.
        same_rows: names of tables whose rows always come with those of another one, and that one's names.
        decay: of whole tensors, a share of lr apart from the gradient (AdamW).
        beta2: how much of the second moment stays in a step.
    """

    def __init__(
        self,
        state: State,
        name: str = "adam",
        per_class: Mapping[str, Combine] | None = None,
        same_rows: Mapping[str, str] | None = None,
        decay: float = 0.0,
        beta2: float = BETA2,
    ) -> None:
        self._device, self._state, self.name = state.device, state, name
        state.value(f"{name}/step", read=lambda: self.step, load=lambda step: self._steps.fill_(step))
        combine: dict[str, Combine] = {f"{part}/*": how for part, how in (per_class or {}).items()}
        state.group(
            name,
            self._read,
            self._load,
            kind="moment",
            combine=combine,
            measure=self._measure,
            moves=self._read_moves,
        )
        self._decay, self._beta2 = decay, beta2
        self._same_rows = dict(same_rows or {})
        self._steps = torch.zeros((), dtype=torch.float64, device=self._device)  # float32 has no room for 1 - 0.999**t
        self._moments = AdamMoments()
        self._in_play: dict[str, RowsInPlay] = {}
        self._valid: Tensor | None = None
        self._now: Corrections | None = None
        self._moves = 0

    @property
    def moves(self) -> int:
        """Grows whenever a buffer is replaced by another, which invalidates captured steps."""
        return self._moves + self._moments.moves

    def _read_moves(self) -> int:
        return self.moves

    @property
    def step(self) -> int:
        """How many steps were begun since the last reset."""
        return int(self._steps)

    def reset(self) -> None:
        """Resets everything in place: captured steps continue with the same buffers."""
        self._state.overwrites(self.name)
        self._steps.zero_()
        self._moments.clear()
        for in_play in self._in_play.values():
            in_play.clear()

    def begin_step(self, valid: Tensor | None = None) -> None:
        """Counts a step; with `valid`, a bool scalar on the device, one that is not valid counts and moves nothing."""
        self._steps += 1 if valid is None else valid
        self._valid, self._now = valid, None

    def make_room(self, name: str, home: Tensor, rows: int) -> None:
        """Capacity for `rows` more of a table; to be called before each step that may be replayed from a graph."""
        in_play = self._rows_of(name)
        if name not in self._same_rows:
            self._moves += in_play.reserve(rows, len(home))
        if self._moments.shape(name) is not None:
            self._moments.lay({name: torch.Size((in_play.capacity, *home.shape[1:]))}, home)

    @torch.no_grad()
    def update_all(self, parts: Mapping[str, Part], gradients: Mapping[str, Tensor], lr: float | Tensor) -> None:
        """Moves stored tensors, or those of their rows that are in play, in place, all at one rate.

        Their gradients are concatenated and processed as one.
        """
        places = {name: self._places(name, part) for name, part in parts.items() if _in_play(part)}
        dense = [
            _summed(gradients[name], places[self._same_rows.get(name, name)], self._rows_of(name).capacity)
            if _in_play(part)
            else gradients[name]
            for name, part in parts.items()
        ]
        for (name, part), change in zip(parts.items(), self._changes(list(parts), dense, lr), strict=True):
            if _in_play(part):
                in_play = self._rows_of(name)
                _subtract(part.home, in_play.rows, change, in_play.is_taken())
            elif part.rows is None:
                self._shrink([part.home], lr)
                part.home.sub_(change)
            else:
                _subtract(part.home, part.rows, change, part.rows >= 0)

    @torch.no_grad()
    def update_together(self, name: str, parts: list[Part], gradients: list[Tensor], lr: float | Tensor) -> None:
        """One Adam step for many whole tensors under one name."""
        if not parts:
            return
        homes = [part.home for part in parts]
        gradient = torch.cat([g.reshape(-1).to(home) for g, home in zip(gradients, homes, strict=True)])
        if self._moments.shape(name) not in (None, gradient.shape):
            raise ValueError(f"tensors that move together, {name!r}, must stay the same: their moments lie end to end")
        pieces = torch.split(self._changes([name], [gradient], lr)[0], [home.numel() for home in homes])
        self._shrink(homes, lr)
        torch._foreach_sub_(homes, [piece.view_as(home) for piece, home in zip(pieces, homes, strict=True)])

    def _shrink(self, homes: list[Tensor], lr: float | Tensor) -> None:
        """Decay by a share of the weights themselves; none in a step that is not valid."""
        if self._decay:
            factor = 1 - lr * self._decay * (1.0 if self._valid is None else self._valid.to(homes[0]))
            torch._foreach_mul_(homes, factor)

    def _changes(self, names: list[str], gradients: list[Tensor], lr: float | Tensor) -> list[Tensor]:
        """What to subtract from each of several parts, given dense gradients."""
        if not names:
            return []
        if not (gradients[0].is_cuda and torch.cuda.is_current_stream_capturing()):
            self._moments.lay({name: g.shape for name, g in zip(names, gradients, strict=True)}, gradients[0])
        if self._now is None:
            self._now = Corrections.at(self._steps, self._valid, gradients[0].dtype, self._beta2)
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        change = adam_change(flat, *self._moments.together(names), self._now, lr)
        pieces = torch.split(change, [gradient.numel() for gradient in gradients])
        return [piece.view_as(gradient) for piece, gradient in zip(pieces, gradients, strict=True)]

    def _places(self, name: str, part: Part) -> Tensor:
        """Where the rows of a part are in play; its table's buffers must have capacity for them."""
        assert part.rows is not None
        if name in self._same_rows:
            return part.rows  # known under the other name
        if not (part.home.is_cuda and torch.cuda.is_current_stream_capturing()):
            self.make_room(name, part.home, len(part.rows))
        return self._rows_of(name).places(part.rows, True if self._valid is None else self._valid)

    def _rows_of(self, name: str) -> RowsInPlay:
        name = self._same_rows.get(name, name)
        if name not in self._in_play:
            self._in_play[name] = RowsInPlay(self._device)
        return self._in_play[name]

    def rows_in_play(self, name: str) -> Tensor | None:
        """Rows of a table that had a gradient since the last reset, filled up with row 0 to a fixed length."""
        name = self._same_rows.get(name, name)
        return self._in_play[name].rows if name in self._in_play else None

    def _read(self) -> dict[str, Tensor]:
        """Moments that are not zero: others are the same as none."""
        tensors: dict[str, Tensor] = {}
        for name in self._moments.names():
            mean, square = self._moments.of(name)
            if self._same_rows.get(name, name) in self._in_play:
                rows = self._rows_of(name).taken()
                if len(rows):
                    tensors |= {f"{name}/rows": rows, f"{name}/mean": mean[: len(rows)]}
                    tensors[f"{name}/square"] = square[: len(rows)]
            elif bool(square.any()) or bool(mean.any()):
                tensors |= {f"{name}/mean": mean, f"{name}/square": square}
        return tensors

    def _measure(self) -> Callable[[], None]:
        shapes = self._moments.shapes()

        def shorten() -> None:
            for name, shape in shapes.items():
                if self._moments.shape(name) is not None:  # moments of zero may have been dropped by a load since
                    self._moments.lay({name: shape}, self._moments.of(name)[0])

        return shorten

    def _load(self, tensors: Mapping[str, Tensor]) -> None:
        self._moves += self._moments.moves + 1
        self._moments, self._in_play = AdamMoments(), {}
        for name in sorted({key.rpartition("/")[0] for key in tensors}):
            saved = tensors[f"{name}/mean"], tensors[f"{name}/square"]
            if f"{name}/rows" in tensors:
                rows = tensors[f"{name}/rows"]
                if name not in self._same_rows:
                    self._rows_of(name).load(rows)
                capacity = max(len(rows), LEAST)
                saved = _padded(saved[0], capacity), _padded(saved[1], capacity)
            self._moments.set(name, *saved)


def _in_play(part: Part) -> bool:
    """Whether the part holds rows that may come in any order."""
    return part.rows is not None and not part.fixed


def _padded(rows: Tensor, length: int) -> Tensor:
    return torch.cat([rows, rows.new_zeros(length - len(rows), *rows.shape[1:])])


def _summed(gradient: Tensor, places: Tensor, capacity: int) -> Tensor:
    """The sum of the gradients `[R, ...]` at each of `capacity` places; to the last bit the same for any capacity."""
    if not gradient.is_cuda:
        return gradient.new_zeros(capacity, *gradient.shape[1:]).index_add_(0, places, gradient)
    # A product with the members of each place: on a GPU, adding row by row would have no fixed order.
    flat = gradient.reshape(len(gradient), gradient.shape[1:].numel())
    taken = places == torch.arange(capacity, device=places.device).unsqueeze(1)
    return (taken.to(flat) @ flat).view(capacity, *gradient.shape[1:])


def _subtract(home: Tensor, rows: Tensor, change: Tensor, valid: Tensor) -> None:
    """Moves rows `[K]` that are `valid`, each of which comes once; zeros added to row 0 for the others do no harm."""
    change = torch.where(valid.view(-1, *[1] * (change.ndim - 1)), change, 0)
    home.index_add_(0, rows.clamp(min=0), change, alpha=-1)
