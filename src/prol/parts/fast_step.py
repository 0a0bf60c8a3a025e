"""A training step that never waits for the device: captured where it can be, watched, and reported when asked."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor

from prol.backbones import Staged
from prol.parts.captured import Captured, Function
from prol.parts.later import Later
from prol.parts.loss_watch import LossWatch

MakeStaged = Callable[[], Staged]
"""Puts a chunk on the device when it is called: on a GPU, on a stream of its own."""


class Kept:
    """The same, with what was made at hand afterwards."""

    def __init__(self, make: MakeStaged) -> None:
        self._make = make
        self.made: Staged = ()

    def __call__(self) -> Staged:
        self.made = self._make()
        return self.made


class FastStep:
    """Runs a function that takes one step and gives its loss terms by name, "total" among them.

    Where "total" is not finite the function must move nothing: that is told here.

    Args:
        function: takes what `ahead` gave, and the chunk's class rows.
        ahead: what of a step does not depend on the steps before, as a pass through a frozen network. On a GPU it runs
            beside the step that is still under way.
    """

    def __init__(self, function: Function, ahead: Function, captured: bool, lr: float) -> None:
        self._names: tuple[str, ...] = ()
        self._function = Captured(partial(self._numbers, function), captured)
        self._ahead = Captured(ahead, captured)
        self._captured = captured
        self._stream: torch.cuda.Stream | None = None
        self._taken: torch.cuda.Event | None = None
        self._watch = LossWatch(lr)
        self._last: Mapping[str, float] = {}

    def __call__(self, layout: Hashable, step: int, staged: MakeStaged, rows: Tensor) -> None:
        """`layout` is where the function's buffers are, `step` the number to name in a complaint."""
        self._looking(self._watch.poll)
        with self._beside(rows.device):
            chunk = staged()
            seen = self._ahead(None, *chunk)
        if self._stream is not None:
            here = torch.cuda.current_stream(rows.device)
            here.wait_stream(self._stream)
            for tensor in (*chunk, *seen.values()):
                tensor.record_stream(here)
            self._taken = torch.cuda.Event()  # type: ignore[no-untyped-call]
        values = self._function(layout, *seen.values(), rows, taken=self._taken)["numbers"]
        numbers = Later(self._names, values)
        self._watch.note(numbers, step, at_once=rows.device.type != "cuda")
        self._last = numbers

    def _numbers(self, function: Function, *inputs: Tensor) -> dict[str, Tensor]:
        """One step's terms as one tensor, so that the host gets them in one copy."""
        values = function(*inputs)
        self._names = tuple(values)
        return {"numbers": torch.stack([value.double() for value in values.values()])}

    def _beside(self, device: torch.device) -> AbstractContextManager[object]:
        """On a GPU, a stream of its own that begins once the step before has taken what was last made there."""
        if not self._captured or device.type != "cuda":
            return nullcontext()
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))
        if self._taken is not None:
            self._stream.wait_event(self._taken)
        return torch.cuda.stream(self._stream)

    def settle(self) -> None:
        """To be called before anything is read from the learner: raises what a step under way has to tell."""
        self._looking(self._watch.settle)

    def _looking(self, look: Callable[[], None]) -> None:
        try:
            look()
        except ValueError:
            self._last = self._watch.last_good  # what the bad step said of itself is not the learner's
            raise

    def report(self) -> Mapping[str, float]:
        """The values of the last step that was taken; what is still under way is waited for when it is read."""
        return self._last

    def restore(self, report: Mapping[str, float]) -> None:
        """Takes over what `report` gave; what was under way belongs to another state."""
        self._last = dict(report)
        self._watch.restart(self._last)
