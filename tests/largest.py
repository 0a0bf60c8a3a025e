"""What a computation makes on the way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


def homes(tensors: Iterable[Tensor]) -> set[int]:
    """Where tensors lie."""
    return {tensor.untyped_storage().data_ptr() for tensor in tensors}


class Largest(TorchDispatchMode):
    """Notes how many numbers the largest tensor holds that was made, not changed in place nor of shape alone."""

    def __init__(self, homes: set[int]) -> None:
        super().__init__()
        self.homes, self.numbers = homes, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        if isinstance(made, Tensor) and not made.is_meta and made.untyped_storage().data_ptr() not in self.homes:
            self.numbers = max(self.numbers, made.numel())
        return made
