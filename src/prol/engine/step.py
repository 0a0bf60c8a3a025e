"""A training step that never waits for the device: captured where possible, and checked and reported later."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor

from prol.backbones.acceleration import Captured, Function
from prol.backbones.base import Staged
from prol.engine.adam import refuse_loss
from prol.state import State

MakeStaged = Callable[[], Staged]
"""Puts a chunk on the device when it is called: on a GPU, on its own stream."""


class Remembered:
    """The same; its result stays available."""

    def __init__(self, make: MakeStaged) -> None:
        self._make = make
        self.made: Staged = ()

    def __call__(self) -> Staged:
        self.made = self._make()
        return self.made


class FastStep:
    """Runs a function that takes one step and returns its loss terms by name, "total" among them.

    Where "total" is not finite the function must change nothing: that is reported here.

    Args:
        function: takes what `ahead` returned, and the chunk's class rows.
        ahead: the part of a step that does not depend on earlier steps, such as a pass through a frozen network. On a
            GPU it runs while the last step is still running.
    """

    def __init__(
        self, function: Function, ahead: Function, captured: bool, lr: float, state: State | None = None
    ) -> None:
        if state is not None:
            state.value("last", read=lambda: dict(self._last), load=self.restore)
        self._names: tuple[str, ...] = ()
        self._function = Captured(partial(self._numbers, function), captured)
        self._ahead = Captured(ahead, captured)
        self._captured = captured
        self._stream: torch.cuda.Stream | None = None
        self._taken: torch.cuda.Event | None = None
        self._watch = LossWatch(lr)
        self._last: Mapping[str, float] = {}

    def __call__(self, layout: Hashable, step: int, staged: MakeStaged, rows: Tensor) -> None:
        """`layout` is where the function's buffers are, `step` the number for error messages."""
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
        """On a GPU, its own stream, which begins once the previous step has read what was last made there."""
        if not self._captured or device.type != "cuda":
            return nullcontext()
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            self._stream.wait_stream(torch.cuda.current_stream(device))
        if self._taken is not None:
            self._stream.wait_event(self._taken)
        return torch.cuda.stream(self._stream)

    def flush(self) -> None:
        """Waits for running steps and raises their errors; to be called before anything is read from the learner."""
        self._looking(self._watch.flush)

    def _looking(self, look: Callable[[], None]) -> None:
        try:
            look()
        except ValueError:
            self._last = self._watch.last_good  # the report of the failed step is not the learner's
            raise

    def report(self) -> Mapping[str, float]:
        """The values of the last step; reading them waits for a step that is still running."""
        return self._last

    def restore(self, report: Mapping[str, float]) -> None:
        """Loads what `report` returned; running steps belong to another state."""
        self._last = dict(report)
        self._watch.restart(self._last)


LAG = 2
"""Steps that may be running while the host prepares the next one."""


class LossWatch:
    """Receives the numbers of each step; raises where their "total" was not finite.

    The step itself must have changed nothing then. On a CPU the error is raised at once. On a GPU it is checked `LAG`
    steps later, or when `flush` is called.
    """

    def __init__(self, lr: float) -> None:
        self.lr = lr
        self._under_way: deque[tuple[Later, int]] = deque()
        self.last_good: Mapping[str, float] = {}
        """The numbers of the last step that was checked and was finite."""

    def note(self, numbers: Later, step: int, at_once: bool) -> None:
        if not at_once:
            self._under_way.append((numbers, step))
        elif not math.isfinite(numbers["total"]):
            refuse_loss(step, self.lr)
        else:
            self.last_good = numbers

    def poll(self) -> None:
        """To be called before each step."""
        while len(self._under_way) >= LAG:
            self._look()

    def flush(self) -> None:
        """To be called before anything is read from the learner."""
        while self._under_way:
            self._look()

    def restart(self, last_good: Mapping[str, float]) -> None:
        """Drops running steps, which belong to another state."""
        self._under_way.clear()
        self.last_good = last_good

    def _look(self) -> None:
        numbers, step = self._under_way.popleft()
        if not math.isfinite(numbers["total"]):
            raise ValueError(
                f"the loss was not finite at step {step} of a task, in an earlier chunk; nothing was "
                f"learnt from that chunk, nor from the current one: lower lr={self.lr}"
            )
        self.last_good = numbers


class Later(Mapping[str, float]):
    """Numbers by name; the first read waits for the device.

    From a GPU they are copied to the host behind the queued work, whatever happens to `values` `[K]` afterwards.
    """

    def __init__(self, names: Sequence[str], values: Tensor) -> None:
        self._names = tuple(names)
        self._numbers: dict[str, float] | None = None
        self._on_host, self._copied = values, None
        if values.is_cuda:
            self._on_host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            self._on_host.copy_(values, non_blocking=True)
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record(torch.cuda.current_stream(values.device))

    @property
    def ready(self) -> bool:
        """Whether reading would not have to wait."""
        return self._numbers is not None or self._copied is None or bool(self._copied.query())  # type: ignore[no-untyped-call]

    def _read(self) -> dict[str, float]:
        if self._numbers is None:
            if self._copied is not None:
                self._copied.synchronize()
            self._numbers = dict(zip(self._names, self._on_host.tolist(), strict=True))
            self._on_host, self._copied = torch.empty(0), None  # memory that a GPU copies to is scarce
        return self._numbers

    def __getitem__(self, name: str) -> float:
        return self._read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return repr(self._read())
