"""Adam over whole tensors, and over those rows of a table that are in play.

Rows that never had a gradient since the last reset have zero moments, so dense Adam would not move them: leaving them
out gives the same result at a cost that does not depend on the table's length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Part:
    """A trained tensor in one step: where it is stored, the leaf that stands for it, and which rows that leaf holds."""

    home: Tensor
    leaf: Tensor
    rows: Tensor | None = None

    @classmethod
    def whole(cls, home: Tensor) -> Part:
        return cls(home, home.detach().requires_grad_())

    @classmethod
    def of_rows(cls, home: Tensor, rows: Tensor) -> Part:
        """Distinct `rows` `[R]` of a table."""
        return cls(home, home[rows].detach().requires_grad_(), rows)


def part_gradients(loss: Tensor, parts: Mapping[str, Part]) -> dict[str, Tensor]:
    """The loss's gradient with respect to each part's leaf; zero for parts it does not depend on."""
    leaves = [part.leaf for part in parts.values()]
    found = torch.autograd.grad(loss, leaves, allow_unused=True)
    return {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for name, leaf, gradient in zip(parts, leaves, found, strict=True)
    }


def adam_change(gradient: Tensor, mean: Tensor, square: Tensor, step: int, lr: float) -> Tensor:
    """Moves both moments on in place and returns what to subtract from the parameter."""
    mean.lerp_(gradient, 1 - BETA1)
    square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    denominator = square.sqrt().div_((1 - BETA2**step) ** 0.5).add_(EPSILON)
    return mean.div(denominator).mul_(lr / (1 - BETA1**step))


class Adam:
    """One step counter, and moments by name. `begin_step` once a step, then `update` each trained part."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.step = 0
        self._moments: dict[str, tuple[Tensor, Tensor]] = {}
        self._in_play: dict[str, Tensor] = {}
        self._place_of: dict[str, Tensor] = {}

    def begin_step(self) -> None:
        self.step += 1

    @torch.no_grad()
    def update(self, name: str, part: Part, gradient: Tensor, lr: float) -> None:
        """Moves the stored tensor, or those of its rows that are in play, in place."""
        if part.rows is None:
            if name not in self._moments:
                self._moments[name] = (torch.zeros_like(gradient), torch.zeros_like(gradient))
            part.home.sub_(adam_change(gradient, *self._moments[name], self.step, lr))
            return
        place = self._places(name, len(part.home), part.rows, gradient)
        moments = self._moments[name]
        everything = torch.zeros_like(moments[0])
        everything[place] = gradient
        part.home[self._in_play[name]] -= adam_change(everything, *moments, self.step, lr)

    def rows_in_play(self, name: str) -> Tensor | None:
        """Rows of a table that had a gradient since the last reset."""
        return self._in_play.get(name)

    def _places(self, name: str, length: int, rows: Tensor, gradient: Tensor) -> Tensor:
        """Where each row stands among the rows in play `[R]`; rows not yet in play are added with zero moments."""
        place_of = self._place_of.get(name, rows[:0])
        if len(place_of) < length:
            grown = place_of.new_full((max(length, 2 * len(place_of)),), -1)
            grown[: len(place_of)] = place_of
            place_of = self._place_of[name] = grown
        known = self._in_play.get(name, rows[:0])
        new = rows[place_of[rows] < 0]
        if len(new) or name not in self._moments:
            place_of[new] = torch.arange(len(known), len(known) + len(new), device=rows.device)
            fresh = gradient.new_zeros(len(new), *gradient.shape[1:])
            mean, square = self._moments.get(name, (fresh[:0], fresh[:0]))
            self._in_play[name] = torch.cat([known, new])
            self._moments[name] = (torch.cat([mean, fresh]), torch.cat([square, fresh]))
        return place_of[rows]

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {f"{name}/rows": rows for name, rows in self._in_play.items()}
        for name, (mean, square) in self._moments.items():
            tensors |= {f"{name}/mean": mean, f"{name}/square": square}
        return tensors, {"step": self.step}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.reset()
        self.step = int(meta["step"])
        for key, tensor in tensors.items():
            name, _, part = key.rpartition("/")
            if part == "rows":
                self._in_play[name] = tensor
                self._place_of[name] = tensor.new_full((int(tensor.max()) + 1 if len(tensor) else 0,), -1)
                self._place_of[name][tensor] = torch.arange(len(tensor), device=tensor.device)
            elif part == "mean":
                self._moments[name] = (tensor, tensors[f"{name}/square"])
