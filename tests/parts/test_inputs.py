"""A training chunk as the network's input."""

from __future__ import annotations

import torch

from prol.backbones import ViT, augmented_input, evaluation_input
from prol.parts.inputs import training_input


def chunk() -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randint(0, 256, (3, 20, side), generator=random, dtype=torch.uint8) for side in (16, 20, 30)]


def test_without_augmentation_it_is_the_evaluation_transform_and_draws_nothing(tiny: ViT) -> None:
    random = torch.Generator().manual_seed(0)
    before = random.get_state()
    inputs = training_input(chunk(), tiny.preprocessing, tiny, "none", random)
    assert torch.equal(inputs, evaluation_input(chunk(), tiny.preprocessing, tiny.device, tiny.dtype))
    assert torch.equal(random.get_state(), before)


def test_crop_and_flip_draw_from_the_given_random_numbers(tiny: ViT) -> None:
    how = tiny.preprocessing
    inputs = training_input(chunk(), how, tiny, "crop_flip", torch.Generator().manual_seed(4))
    expected = augmented_input(chunk(), how, tiny.device, tiny.dtype, torch.Generator().manual_seed(4))
    assert torch.equal(inputs, expected)
    assert inputs.dtype == tiny.dtype
    assert not torch.equal(inputs, evaluation_input(chunk(), how, tiny.device, tiny.dtype))
