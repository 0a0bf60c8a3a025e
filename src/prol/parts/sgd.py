"""Stochastic gradient descent with momentum, over whole tensors and over rows of tables that grow."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from prol.parts.adam import Part

MOMENTUM = 0.9


class SGD:
    """Velocities by name: v <- 0.9 v + g, then the tensor goes down by lr v.

    Rows that never had a gradient since the last reset have no velocity and do not move at all.
    """

    def __init__(self) -> None:
        self._velocities: dict[str, Tensor] = {}

    def reset(self) -> None:
        self._velocities = {}

    @torch.no_grad()
    def update(self, name: str, part: Part, gradient: Tensor, lr: float, decay: float = 0.0) -> None:
        """Moves the stored tensor in place; `decay` adds that share of the part itself to its gradient."""
        if decay:
            gradient = gradient + decay * part.leaf
        velocity = self._velocity(name, part.home).mul_(MOMENTUM)
        if part.rows is None:
            velocity += gradient
        else:
            velocity[part.rows] += gradient
        part.home.sub_(velocity, alpha=lr)

    def _velocity(self, name: str, home: Tensor) -> Tensor:
        known = self._velocities.get(name)
        if known is None or len(known) < len(home):
            grown = torch.zeros_like(home)
            if known is not None:
                grown[: len(known)] = known
            known = self._velocities[name] = grown
        return known

    def state(self) -> dict[str, Tensor]:
        return dict(self._velocities)

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        self._velocities = dict(tensors)
