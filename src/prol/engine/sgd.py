"""Stochastic gradient descent with momentum, over whole tensors and over rows of tables that grow."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from prol.classes import Combine
from prol.engine.adam import Part
from prol.state import State

MOMENTUM = 0.9


class SGD:
    """Velocities by name: v <- 0.9 v + g, then the tensor goes down by lr v.

    Rows that never had a gradient since the last reset have no velocity and do not move at all.
    """

    def __init__(self, state: State, per_class: Mapping[str, Combine] | None = None) -> None:
        self._state = state
        state.group(
            "sgd",
            self._read,
            self._load,
            kind="moment",
            combine=per_class,
            measure=self._measure,
            moves=self._read_moves,
        )
        self._velocities: dict[str, Tensor] = {}
        self.moves = 0
        """Grows whenever a buffer is replaced by another, which invalidates captured steps."""

    def _read_moves(self) -> int:
        return self.moves

    def reset(self) -> None:
        """Resets everything in place: captured steps continue with the same buffers."""
        self._state.overwrites("sgd")
        for velocity in self._velocities.values():
            velocity.zero_()

    @torch.no_grad()
    def update(
        self, name: str, part: Part, gradient: Tensor, lr: float, decay: float = 0.0, valid: Tensor | None = None
    ) -> None:
        """Moves the stored tensor in place; `decay` adds that share of the part itself to its gradient.

        Nothing moves where `valid`, a bool scalar on the device, is false.
        """
        if decay:
            gradient = gradient + decay * part.leaf
        velocity = self._velocity(name, part.home)
        moved = velocity * MOMENTUM
        if part.rows is None:
            moved += gradient
        else:
            moved[part.rows] += gradient
        _set(velocity, moved, valid)
        _set(part.home, part.home.sub(moved, alpha=lr), valid)

    def _velocity(self, name: str, home: Tensor) -> Tensor:
        known = self._velocities.get(name)
        if known is not None and (known.shape[1:] != home.shape[1:] or len(known) > len(home)):
            raise ValueError(f"sgd/{name} has shape {list(known.shape)}, but moves a tensor of {list(home.shape)}")
        if known is None or len(known) < len(home):
            grown = torch.zeros_like(home)
            if known is not None:
                grown[: len(known)] = known
            known = self._velocities[name] = grown
            self.moves += 1
        return known

    def _read(self) -> dict[str, Tensor]:
        """Velocities that are not zero: others are the same as none."""
        return {name: velocity for name, velocity in self._velocities.items() if bool(velocity.any())}

    def _measure(self) -> Callable[[], None]:
        lengths = {name: len(velocity) for name, velocity in self._velocities.items()}

        def shorten() -> None:
            self._velocities = {name: self._velocities[name][:length] for name, length in lengths.items()}
            self.moves += 1

        return shorten

    def _load(self, tensors: Mapping[str, Tensor]) -> None:
        self._velocities = dict(tensors)
        self.moves += 1


def _set(tensor: Tensor, value: Tensor, valid: Tensor | None) -> None:
    """Sets it in place, and only where the step is valid: an invalid one may have computed anything."""
    tensor.copy_(value if valid is None else torch.where(valid, value, tensor))
