"""A training chunk as the network's input, augmented or not."""

from __future__ import annotations

import torch
from torch import Tensor

from prol.backbones import Augment, Backbone, Pixels, Preprocessing, Staged, render, stage_augmented, stage_evaluation


def training_input(
    pixels: Pixels, how: Preprocessing, backbone: Backbone, augment: Augment, random: torch.Generator
) -> Tensor:
    """`[N, 3, size, size]` on the backbone's device; `random` drives the augmentation."""
    return render(stage_training(pixels, how, backbone, augment, random), how, backbone.dtype)


def stage_training(
    pixels: Pixels, how: Preprocessing, backbone: Backbone, augment: Augment, random: torch.Generator
) -> Staged:
    """What `render` makes that input from: all that it needs of the host."""
    if augment == "crop_flip":
        return stage_augmented(pixels, how, backbone.device, backbone.dtype, random)
    return stage_evaluation(pixels, how, backbone.device, backbone.dtype)


def split_staged(staged: Staged) -> list[Staged]:
    """Inputs staged one behind the other, each by itself: each begins with images, which alone have four axes.

    So shapes alone say where one ends: a graph captured for these shapes never meets another split.
    """
    starts = [i for i, tensor in enumerate(staged) if tensor.ndim == 4]
    return [staged[start:end] for start, end in zip(starts, [*starts[1:], len(staged)], strict=True)]
