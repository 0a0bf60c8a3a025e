"""Tells of losses that were not finite, on a GPU without waiting for each step."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from prol.parts.losses import require_finite

LAG = 2
"""Steps that may be under way while the host prepares the next one."""


@dataclass
class _Noted:
    value: Tensor
    ready: torch.cuda.Event
    step: int


class LossWatch:
    """Is told the loss of each step; raises where one was not finite.

    The step itself must have changed nothing then. On a CPU that is told at once. On a GPU losses are copied to the
    host behind the steps and looked at `LAG` steps later, or when `settle` is called.
    """

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self._under_way: deque[_Noted] = deque()

    def note(self, loss: Tensor, step: int) -> None:
        if not loss.is_cuda:
            require_finite(loss, step, self.lr)
            return
        value = torch.empty((), dtype=loss.dtype, pin_memory=True)
        value.copy_(loss, non_blocking=True)
        ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ready.record(torch.cuda.current_stream(loss.device))
        self._under_way.append(_Noted(value, ready, step))

    def poll(self) -> None:
        """To be called before each step."""
        while len(self._under_way) >= LAG:
            self._look()

    def settle(self) -> None:
        """To be called before anything is read from the learner."""
        while self._under_way:
            self._look()

    def forget(self) -> None:
        """Drops what is under way."""
        self._under_way.clear()

    def _look(self) -> None:
        noted = self._under_way.popleft()
        noted.ready.synchronize()
        if not math.isfinite(float(noted.value)):
            raise ValueError(
                f"the loss was not finite at step {noted.step} of a task, in a chunk handed over before; nothing was "
                f"learnt from that chunk, nor from one handed over just now: lower lr={self.lr}"
            )
