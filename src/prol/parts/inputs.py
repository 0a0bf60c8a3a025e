"""A training chunk as the network's input, augmented or not."""

from __future__ import annotations

import torch
from torch import Tensor

from prol.backbones import Augment, Backbone, Preprocessing, augmented_input, evaluation_input


def training_input(
    pixels: list[Tensor], how: Preprocessing, backbone: Backbone, augment: Augment, random: torch.Generator
) -> Tensor:
    """`[N, 3, size, size]` on the backbone's device; `random` drives the augmentation."""
    if augment == "crop_flip":
        return augmented_input(pixels, how, backbone.device, backbone.dtype, random)
    return evaluation_input(pixels, how, backbone.device, backbone.dtype)
