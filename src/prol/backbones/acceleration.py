"""How a device is driven: operation by operation, or through compiled blocks and captured graphs.

A captured step is one graph that a GPU replays: no launches one by one, and no waiting for the host.
"""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from prol.backbones.base import Acceleration

_SHAPES = 64

F = TypeVar("F", bound=Callable[..., Any])


class _Here(threading.local):
    """Settings of one thread."""

    as_they_are = False


_here = _Here()


@contextmanager
def uncompiled() -> Iterator[None]:
    """Within this context compiled functions run uncompiled: shapes that may never recur are not worth compiling.

    Nor are they worth a plan of cuDNN's for their attention, which takes far longer than the step itself.
    """
    before, _here.as_they_are = _here.as_they_are, True
    try:
        with _NO_PLANS:
            yield
    finally:
        _here.as_they_are = before


class _NoPlans:
    """torch has one switch for all threads: the first to enter turns it off, the last to leave restores it."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = threading.Lock(), 0, True

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
                torch.backends.cuda.enable_cudnn_sdp(False)
            self._inside += 1

    def __exit__(self, *failure: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                torch.backends.cuda.enable_cudnn_sdp(self._before)


_NO_PLANS = _NoPlans()


@cache
def compiled(function: F) -> F:
    """The function through torch's compiler, once for each combination of shapes it is called with.

    Where that fails, as without a C compiler, a warning says so and the function runs as it is.
    """
    import torch._dynamo  # takes seconds, and only those who compile need it

    # The compiler's own limit is 8: passes with and without gradients, prefixes and the last block are more than that.
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    setattr(torch._dynamo.config, limit, max(getattr(torch._dynamo.config, limit), _SHAPES))
    # float32 means float32 here: the compiler's advice to use fewer bits is of no use.
    warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")
    fast, works = torch.compile(function, dynamic=False), True

    def call(*arguments: Any) -> Any:
        nonlocal works
        if works and not _here.as_they_are:
            try:
                return fast(*arguments)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                works = False
                first = (str(error).splitlines() or [""])[0]
                warnings.warn(f"{function.__name__} cannot be compiled here and runs as it is: {first}", stacklevel=2)
        return function(*arguments)

    return cast(F, call)


def fast(how: Acceleration, function: F) -> F:
    """A function of tensors as it is to be called: through torch's compiler where that is switched on."""
    return compiled(function) if how.compiled else function


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device. What it holds now is sent to a GPU, whatever becomes of it afterwards."""
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


Function = Callable[..., dict[str, Tensor]]
Shapes = tuple[tuple[torch.Size, torch.dtype], ...]

EAGER_RUNS = 3
"""How often a function is run as it is before it is recorded: libraries choose their kernels then."""
MOST_GRAPHS = 4


@dataclass
class _Recording:
    runs: int = 0
    graph: torch.cuda.CUDAGraph | None = None
    inputs: tuple[Tensor, ...] = ()
    outputs: dict[str, Tensor] | None = None


class Captured:
    """Calls a function that works on tensors of fixed shape, changes others in place, and never reads the device.

    On a GPU each combination of input shapes is run as it is a few times, then recorded, and replayed from then on.
    `layout` says where the buffers are that the function works on: when it changes, all recordings are dropped. On
    other devices, and where recording fails, the function is simply called.

    Outputs of a replay are overwritten by the next one of the same shapes.
    """

    def __init__(self, function: Function, enabled: bool, most: int = MOST_GRAPHS) -> None:
        self.function, self.enabled, self.most = function, enabled, most
        self._layout: Hashable = None
        self._recordings: dict[Shapes, _Recording] = {}
        self._stream: torch.cuda.Stream | None = None
        self._memory: Any = None

    def __call__(self, layout: Hashable, *inputs: Tensor, taken: torch.cuda.Event | None = None) -> dict[str, Tensor]:
        """The function's outputs; `taken` is recorded as soon as the inputs may be overwritten."""
        if not self.enabled or not inputs[0].is_cuda:
            return self._run_here(inputs, taken)
        if layout != self._layout:
            self._layout, self._memory = layout, None  # memory whose graphs are freed may not be reused
            self._recordings.clear()
        shapes = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        recording = self._recordings.setdefault(shapes, _Recording())
        if recording.graph is None:
            if recording.runs < EAGER_RUNS or not self._may_record():
                recording.runs += 1
                # Compiling takes long: a shape must have come again before it is worth it.
                with nullcontext() if recording.runs >= EAGER_RUNS else uncompiled():
                    return self._run_aside(inputs, taken)
            try:
                self._record(recording, inputs)
            except RuntimeError as error:
                self.enabled = False
                self._recordings.clear()
                warnings.warn(f"steps cannot be captured as a graph and run one by one: {error}", stacklevel=2)
                return self._run_here(inputs, taken)
        assert recording.graph is not None
        assert recording.outputs is not None
        for static, given in zip(recording.inputs, inputs, strict=True):
            static.copy_(given, non_blocking=True)
        _record(taken, inputs[0].device)
        recording.graph.replay()
        return recording.outputs

    def _may_record(self) -> bool:
        """Whether there is room for a recording: rare shapes must not evict each other's all the time."""
        return sum(recording.graph is not None for recording in self._recordings.values()) < self.most

    def _run_here(self, inputs: tuple[Tensor, ...], taken: torch.cuda.Event | None) -> dict[str, Tensor]:
        try:
            return self.function(*inputs)
        finally:
            _record(taken, inputs[0].device)

    def _run_aside(self, inputs: tuple[Tensor, ...], taken: torch.cuda.Event | None) -> dict[str, Tensor]:
        """Runs on the stream that will record, so that autograd and libraries have set up there what they need."""
        here = torch.cuda.current_stream(inputs[0].device)
        if self._stream is None:
            self._stream = torch.cuda.Stream(inputs[0].device)  # type: ignore[no-untyped-call]
        self._stream.wait_stream(here)
        try:
            with torch.cuda.stream(self._stream):
                outputs = self._run_here(inputs, taken)
        finally:  # also of a run that failed: what it has begun must be over before anything else is
            here.wait_stream(self._stream)
        for tensor in (*inputs, *outputs.values()):
            tensor.record_stream(here)
        return outputs

    def _record(self, recording: _Recording, inputs: tuple[Tensor, ...]) -> None:
        device = inputs[0].device
        gc.collect()  # a learner that is gone holds graphs in a cycle, and they may not be freed while one is recorded
        torch.cuda.synchronize(device)
        if self._memory is None:
            self._memory = torch.cuda.graph_pool_handle()
        recording.inputs = tuple(tensor.clone() for tensor in inputs)
        graph = torch.cuda.CUDAGraph()
        # These graphs never run at the same time, so they may share their memory. Other threads, which read
        # images ahead, may continue meanwhile. The outer stream is there to come back to if recording fails.
        here = torch.cuda.stream(torch.cuda.current_stream(device))
        there = torch.cuda.graph(graph, pool=self._memory, stream=self._stream, capture_error_mode="thread_local")
        with here, there:
            recording.outputs = self.function(*recording.inputs)
        recording.graph = graph


def _record(event: torch.cuda.Event | None, device: torch.device) -> None:
    if event is not None:
        event.record(torch.cuda.current_stream(device))


MOST_SIZES = 8
"""Number of batch shapes with a graph: training chunks, and predictions in a few sizes."""


class FrozenPass:
    """A forward pass without gradients, `[B, 3, size, size]` to `[B, ...]`.

    Args:
        look: the pass. The network's tensors may change in place, but must stay where they are: a graph reads them
            there. It should not know the learner it belongs to, which would then outlive its last use.
    """

    def __init__(self, look: Callable[[Tensor], Tensor], captured: bool) -> None:
        self._pass = Captured(partial(_seen, look), captured, MOST_SIZES)

    @torch.no_grad()
    def __call__(self, inputs: Tensor) -> Tensor:
        return self._pass(None, inputs)["seen"].clone()  # the next replay writes to the same place


def _seen(look: Callable[[Tensor], Tensor], inputs: Tensor) -> dict[str, Tensor]:
    return {"seen": look(inputs)}
