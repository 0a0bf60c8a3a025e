"""The network as it was when the last task ended: it is asked, and not trained."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.backbones import ResNet
from prol.engine.heads import LinearHead
from prol.parts.packing import packed, unpacked


class OldNetwork:
    """Copies of a network, a projector and a head, in buffers that stay where they are.

    Until something was taken over the head has no rows.
    """

    def __init__(self, network: ResNet, projector: nn.Module) -> None:
        self._network = network.fork("none")
        self._projector = copy.deepcopy(projector).requires_grad_(False)
        self._head = LinearHead(network.width, network.device, network.dtype)

    @property
    def classes(self) -> int:
        """How many it knows."""
        return self._head.weight.count

    @torch.no_grad()
    def take_over(self, network: ResNet, projector: nn.Module, head: LinearHead) -> None:
        self._network.model.load_state_dict(network.model.state_dict())
        self._projector.load_state_dict(projector.state_dict())
        self._head.load({name: table.rows for name, table in head.tables().items()})

    @torch.no_grad()
    def says(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Unit projections `[N, d]` and logits `[N, classes]`, with norms by the running statistics it had."""
        features = self._network.features(images, "eval")
        return F.normalize(self._projector(features)), self._head.logits(features)

    def parameters(self) -> dict[str, Tensor]:
        """Weights by name, the head's among them; nothing while it knows no class."""
        if not self.classes:
            return {}
        network, projector = self._network.model.named_parameters(), self._projector.named_parameters()
        head = {name: table.rows for name, table in self._head.tables().items()}
        return packed(old_network=dict(network), old_projector=dict(projector), old_head=head)

    def running(self) -> dict[str, Tensor]:
        """Running statistics by name; nothing while it knows no class."""
        return packed(old_running=self._network.running()) if self.classes else {}

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes over what `parameters` and `running` gave; without any, it knows no class."""
        head = unpacked("old_head", tensors)
        for name, table in self._head.tables().items():
            table.replace(head[name] if head else table.rows[:0])
        if head:
            for name, home in (self.parameters() | self.running()).items():
                home.copy_(tensors[name])
