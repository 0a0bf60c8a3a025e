"""A network that adapts to the first task and is frozen afterwards."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.base import Backbone
from prol.engine.adam import Adam, Part, part_gradients, refuse_loss
from prol.engine.heads import LinearHead
from prol.state import State


class FirstTask:
    """Tunes the LayerNorms by the cross entropy of a linear head, which is discarded with the task.

    The backbone itself is not touched: `network` shares all but the LayerNorms with it.
    """

    def __init__(self, state: State, backbone: Backbone, lr: float) -> None:
        self.network = backbone.fork("norms")
        self.lr, self.over, self._state = lr, False, state
        state.value("over", self)
        state.tensors("norm", self.network.trained, kind="parameter", agree="LayerNorms")
        head = state.scope("head")
        self.head = LinearHead(head, backbone.width, backbone.dtype, grows=self._is_tuning, stored=False)
        self.adam = Adam(state, per_class={"head.weight": "mean", "head.bias": "mean"})

    def _is_tuning(self) -> bool:
        return not self.over

    def end(self) -> None:
        """Freezes the network as it is, and drops what trained it."""
        self._state.overwrites("head")
        self.over = True
        self.adam.reset()
        for table in self.head.tables().values():
            table.truncate(0)

    @torch.enable_grad()
    def step(self, inputs: Tensor, rows: Tensor, steps: int, rate: float | None = None) -> tuple[Tensor, float]:
        """One step on inputs of the class rows `[B]`; returns the features before it, and the loss."""
        every = torch.arange(self.head.bias.count, device=rows.device)
        parts = {f"head.{name}": Part.of_rows(table.rows, every) for name, table in self.head.tables().items()}
        parts |= {f"norm.{name}": Part(p.data, p) for name, p in self.network.trained().items()}
        features, read = self.look(inputs)
        loss = F.cross_entropy(F.linear(features, parts["head.weight"].leaf, parts["head.bias"].leaf), rows)
        lr = self.lr if rate is None else rate
        if not bool(loss.isfinite()):
            refuse_loss(steps, lr)
        gradients = part_gradients(loss, parts)
        self.adam.begin_step()
        self.adam.update_all(parts, gradients, lr)
        return read.detach(), loss.item()

    def look(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The features `[B, D]` to classify, and others requested from the same pass."""
        features = self.network.features(inputs)
        return features, features

    def trained_tensors(self) -> list[Tensor]:
        return [] if self.over else [*self.network.trained().values(), *self.head.tensors()]
