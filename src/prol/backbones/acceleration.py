"""How a device is driven: operation by operation, or through compiled blocks and captured graphs."""

from __future__ import annotations

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

_as_they_are = False


@contextmanager
def uncompiled() -> Iterator[None]:
    """Compiled functions run as they are inside: shapes that may never come again are not worth a compiler's time."""
    global _as_they_are
    before, _as_they_are = _as_they_are, True
    try:
        yield
    finally:
        _as_they_are = before


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
        if works and not _as_they_are:
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
