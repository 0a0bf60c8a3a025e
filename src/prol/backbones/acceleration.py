"""How a device is driven: operation by operation, or through compiled blocks and captured graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

_SHAPES = 64


@dataclass(frozen=True)
class Acceleration:
    """What is switched on. The numbers computed are the same up to rounding.

    Args:
        compiled: the network's blocks go through torch.compile.
        captured: whole steps are replayed as CUDA graphs.
    """

    compiled: bool = False
    captured: bool = False

    @classmethod
    def for_device(cls, device: torch.device) -> Acceleration:
        """Everything on a GPU, nothing elsewhere: a CPU gains nothing that would be worth the wait for a compiler."""
        gpu = device.type == "cuda"
        return cls(compiled=gpu, captured=gpu)


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function through torch's compiler, once for each combination of shapes it is called with."""
    import torch._dynamo  # takes seconds, and only those who compile need it

    # The compiler's own limit is 8: passes with and without gradients, prefixes and the last block are more than that.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, _SHAPES)
    return torch.compile(function, dynamic=False)
