"""How a device is driven: operation by operation, or through compiled blocks and captured graphs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, cast

import torch

_SHAPES = 64

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Acceleration:
    """What is switched on. The numbers computed are the same up to rounding.

    Args:
        compiled: the network's blocks, and pieces of a method that are worth it, go through torch.compile.
        captured: whole steps are replayed as CUDA graphs.
    """

    compiled: bool = False
    captured: bool = False

    @classmethod
    def for_device(cls, device: torch.device) -> Acceleration:
        """Everything on a GPU, nothing elsewhere: a CPU gains nothing that would be worth the wait for a compiler."""
        gpu = device.type == "cuda"
        return cls(compiled=gpu, captured=gpu)

    def fast(self, function: F) -> F:
        """A function of tensors as it is to be called: through torch's compiler where that is switched on."""
        return compiled(function) if self.compiled else function


PLAIN = Acceleration()


class _Here(threading.local):
    """What holds in one thread."""

    as_they_are = False


_here = _Here()


@contextmanager
def uncompiled() -> Iterator[None]:
    """Compiled functions run as they are inside: shapes that may never come again are not worth a compiler's time.

    Nor are they worth a plan of cuDNN's for their attention, which takes far longer than the step itself.
    """
    before, _here.as_they_are = _here.as_they_are, True
    try:
        with _NO_PLANS:
            yield
    finally:
        _here.as_they_are = before


class _NoPlans:
    """torch's switch is one for all threads: the first that comes in puts it off, the last that leaves puts it back."""

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
