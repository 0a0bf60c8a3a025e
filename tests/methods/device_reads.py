"""A mode that fails where a step reads the device, as a step that a GPU records may not."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

READS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "lift_fresh", "bincount"}
"""Operations whose result or shape the host must wait for, or that take their values from it."""


class NothingRead(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in READS, name
        if name in ("index", "index_put_", "_index_put_impl_"):
            assert all(index is None or index.dtype != torch.bool for index in args[1]), "selected by a mask"
        return func(*args, **(kwargs or {}))
