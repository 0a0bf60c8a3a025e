"""The hard-soft update: a constant rate until a task is roughly learnt, then a cosine schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class HardSoft:
    """Each task starts hard. Once the cross entropy of a chunk falls below `threshold` it turns soft until `restart`.

    With m steps taken in soft mode a rate is eta_min + (base - eta_min) (1 + cos(pi m / t_max)) / 2, which is periodic.
    """

    threshold: float
    t_max: int
    enabled: bool = True
    soft: bool = False
    soft_steps: int = 0

    def restart(self) -> None:
        self.soft, self.soft_steps = False, 0

    def observe(self, cross_entropy: float) -> None:
        """To be told after the forward pass of each step."""
        if self.enabled and cross_entropy < self.threshold:
            self.soft = True

    def rate(self, base: float, eta_min: float) -> float:
        """The rate in force for the present step."""
        if not self.soft:
            return base
        return eta_min + (base - eta_min) * (1 + math.cos(math.pi * self.soft_steps / self.t_max)) / 2

    def advance(self) -> None:
        """To be told after each optimiser step."""
        if self.soft:
            self.soft_steps += 1
