"""Images through a network that learning leaves alone: on a GPU one graph, from bytes to features."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from prol.backbones import Augment, Backbone, Pixels, Preprocessing, Staged, render, stage_evaluation
from prol.parts.captured import Captured
from prol.parts.inputs import stage_training


class FrozenPass:
    """What a network makes of images, `[B, ...]`, without gradients. `how` makes the network's input of them.

    Args:
        look: from that input, `[B, 3, size, size]`. The network's tensors may change in place, but must stay where
            they are: a graph reads them there.
    """

    def __init__(self, backbone: Backbone, look: Callable[[Tensor], Tensor]) -> None:
        self.backbone, self.look, self._how = backbone, look, backbone.preprocessing
        self._pass = Captured(self._seen, backbone.acceleration.captured)

    def training(self, pixels: Pixels, how: Preprocessing, augment: Augment, random: torch.Generator) -> Tensor:
        """Of a chunk that is learnt; `random` drives the augmentation."""
        return self(stage_training(pixels, how, self.backbone, augment, random), how)

    def evaluation(self, pixels: Pixels, how: Preprocessing) -> Tensor:
        return self(stage_evaluation(pixels, how, self.backbone.device, self.backbone.dtype), how)

    @torch.no_grad()
    def __call__(self, staged: Staged, how: Preprocessing) -> Tensor:
        self._how = how
        seen = self._pass(how, *staged)["seen"]
        return seen.clone() if seen.is_cuda else seen  # the next replay writes to the same place

    def _seen(self, *staged: Tensor) -> dict[str, Tensor]:
        inputs = render(staged, self._how, self.backbone.dtype, self.backbone.acceleration)
        return {"seen": self.look(inputs)}
