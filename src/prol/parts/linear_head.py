"""One linear map over all classes, whose rows grow with them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.parts.adam import Part
from prol.parts.rows import RowTable


class LinearHead:
    """`weight` `[C, D]` and `bias` `[C]`, one row a class, all of them trained."""

    def __init__(self, width: int, device: torch.device, dtype: torch.dtype) -> None:
        self.width = width
        self.weight = RowTable((width,), device, dtype)
        self.bias = RowTable((), device, dtype)

    def append(self, classes: int, random: torch.Generator, deviation: float = 0.0) -> None:
        """Adds rows: weights normal with this deviation, zero when it is 0; biases zero."""
        weight = torch.zeros(classes, self.width)
        if deviation:
            weight.normal_(0, deviation, generator=random)
        self.weight.append(weight)
        self.bias.append(torch.zeros(classes))

    def trained(self) -> dict[str, Part]:
        """Both tables as parts to train."""
        return {name: Part.whole(table.rows) for name, table in self.tables().items()}

    def logits(self, features: Tensor, live: Mapping[str, Part] | None = None) -> Tensor:
        """`[B, C]` from features `[B, D]`, through the leaves of `live` where given."""
        if live is None:
            return F.linear(features, self.weight.rows, self.bias.rows)
        return F.linear(features, live["weight"].leaf, live["bias"].leaf)

    def tables(self) -> dict[str, RowTable]:
        return {"weight": self.weight, "bias": self.bias}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over saved tables."""
        for name, table in self.tables().items():
            table.replace(tensors[name])
