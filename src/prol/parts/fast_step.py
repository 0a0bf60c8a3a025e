"""A training step that never waits for the device: captured where it can be, watched, and reported when asked."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import torch
from torch import Tensor

from prol.parts.captured import Captured, Function
from prol.parts.loss_watch import LossWatch


class FastStep:
    """Runs a function that takes one step and gives its loss terms by name, "total" among them.

    Where "total" is not finite the function must move nothing: that is told here.
    """

    def __init__(self, function: Function, captured: bool, lr: float) -> None:
        self._function = Captured(function, captured)
        self._watch = LossWatch(lr)
        self._last: Mapping[str, float | Tensor] = {}

    def __call__(self, layout: Hashable, step: int, *inputs: Tensor) -> None:
        """`layout` is where the function's buffers are, `step` the number to name in a complaint."""
        self._watch.poll()
        values = self._function(layout, *inputs)
        self._watch.note(values["total"], step)
        self._last = values

    def settle(self) -> None:
        """To be called before anything is read from the learner: raises what a step under way has to tell."""
        self._watch.settle()

    def report(self) -> dict[str, float]:
        """The values of the last step that was taken."""
        if any(isinstance(value, Tensor) for value in self._last.values()):
            values = [torch.as_tensor(value, dtype=torch.float64) for value in self._last.values()]
            self._last = dict(zip(self._last, torch.stack(values).tolist(), strict=True))  # one wait for the device
        return {name: float(value) for name, value in self._last.items()}

    def restore(self, report: Mapping[str, float]) -> None:
        """Takes over what `report` gave; what was under way belongs to another state."""
        self._last = dict(report)
        self._watch.forget()
