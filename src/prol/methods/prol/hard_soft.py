"""The hard-soft update: a constant rate until a task is roughly learnt, then a cosine schedule."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from prol.state import State


class HardSoft:
    """Each task starts hard. Once the cross entropy of a chunk falls below `threshold` it turns soft until `restart`.

    With m steps taken in soft mode a rate is eta_min + (base - eta_min) (1 + cos(pi m / t_max)) / 2, which is periodic.
    Mode and count are on the device: a decision does not wait for it. Reading `soft` or `soft_steps` does.
    """

    def __init__(self, state: State, threshold: float, t_max: int, enabled: bool = True) -> None:
        self.threshold, self.t_max, self.enabled = threshold, t_max, enabled
        self._soft = torch.zeros((), dtype=torch.bool, device=state.device)
        self._soft_steps = torch.zeros((), dtype=torch.float64, device=state.device)
        pace = state.scope("pace")
        pace.value("soft", read=lambda: self.soft, load=lambda soft: self._soft.fill_(soft))
        pace.value("soft_steps", read=lambda: self.soft_steps, load=lambda steps: self._soft_steps.fill_(steps))

    @property
    def soft(self) -> bool:
        return bool(self._soft)

    @property
    def soft_steps(self) -> int:
        return int(self._soft_steps)

    def restart(self) -> None:
        self._soft.zero_()
        self._soft_steps.zero_()

    def observe(self, cross_entropy: float | Tensor, counts: bool | Tensor = True) -> None:
        """To be called after each forward pass; `counts` says whether it shows how well the task is learnt."""
        if self.enabled:
            low = torch.as_tensor(cross_entropy < self.threshold, device=self._soft.device)
            self._soft |= low & torch.as_tensor(counts, device=self._soft.device)

    def rate(self, base: float, eta_min: float) -> Tensor:
        """The rate in force for the present step, a float64 scalar."""
        cosine = eta_min + (base - eta_min) * (1 + torch.cos(math.pi * self._soft_steps / self.t_max)) / 2
        return torch.where(self._soft, cosine, base)

    def advance(self, valid: bool | Tensor = True) -> None:
        """To be called after each optimiser step; `valid` says whether it was taken."""
        self._soft_steps += self._soft & valid
