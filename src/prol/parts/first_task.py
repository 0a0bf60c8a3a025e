"""A network that adapts to the first task and is frozen for ever after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import Backbone
from prol.class_rows import Together
from prol.learner import Amount
from prol.parts import losses
from prol.parts.adam import Adam, Part, part_gradients
from prol.parts.packing import packed, unpacked
from prol.parts.rows import RowTable


def head_tables(prefix: str) -> dict[str, Together]:
    """What of the state under a prefix has a row for each class."""
    names = [f"{prefix}head/{name}" for name in ("weight", "bias")]
    return dict.fromkeys([*names, *(f"{prefix}adam/head.{name}/*" for name in ("weight", "bias"))], "mean")


class FirstTask:
    """Tunes the LayerNorms by the cross entropy of a linear head, which is thrown away with the task.

    The backbone itself is not touched: `network` shares all but the LayerNorms with it.
    """

    def __init__(self, backbone: Backbone, lr: float) -> None:
        self.network = backbone.fork("norms")
        self.lr = lr
        self.over = False
        self._tables = {
            "weight": RowTable((backbone.width,), backbone.device, backbone.dtype),
            "bias": RowTable((), backbone.device, backbone.dtype),
        }
        self.adam = Adam(backbone.device)

    def add_classes(self, count: int) -> None:
        if not self.over:
            self._tables["weight"].append(torch.zeros(count, self.network.width))
            self._tables["bias"].append(torch.zeros(count))

    def end(self) -> None:
        """Freezes the network as it is, and drops what trained it."""
        self.over = True
        self.adam.reset()
        for table in self._tables.values():
            table.replace(table.rows[:0])

    @torch.enable_grad()
    def step(self, inputs: Tensor, rows: Tensor, steps: int, rate: float | None = None) -> tuple[Tensor, float]:
        """One step on inputs of the class rows `[B]`; what was read of them before it, and the loss."""
        every = torch.arange(self._tables["bias"].count, device=rows.device)
        parts = {f"head.{name}": Part.of_rows(table.rows, every) for name, table in self._tables.items()}
        parts |= {f"norm.{name}": Part(p.data, p) for name, p in self.network.trained().items()}
        features, read = self.look(inputs)
        loss = F.cross_entropy(F.linear(features, parts["head.weight"].leaf, parts["head.bias"].leaf), rows)
        lr = self.lr if rate is None else rate
        losses.require_finite(loss, steps, lr)
        gradients = part_gradients(loss, parts)
        self.adam.begin_step()
        self.adam.update_all(parts, gradients, lr)
        return read.detach(), loss.item()

    def look(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The features `[B, D]` to be classified, and what else of the same pass is wanted."""
        features = self.network.features(inputs)
        return features, features

    def trained_now(self) -> Amount:
        if self.over:
            return Amount(0, 0)
        return Amount.of(*self.network.trained().values(), *(table.rows for table in self._tables.values()))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        moments, adam = self.adam.state()
        head = {name: table.rows for name, table in self._tables.items()}
        return packed(norm=self.network.trained(), head=head, adam=moments), {"over": self.over, "adam": adam}

    @torch.no_grad()
    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        for name, tensor in unpacked("norm", tensors).items():
            self.network.trained()[name].copy_(tensor)
        for name, table in self._tables.items():
            table.replace(unpacked("head", tensors)[name])
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.over = bool(meta["over"])
