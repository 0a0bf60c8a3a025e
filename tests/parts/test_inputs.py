"""A training chunk as the network's input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prol.backbones import Pixels, ViT, evaluation_input, render, stage_augmented, stage_evaluation
from prol.backbones.preprocess import split_staged, stage_training, training_input


def chunk() -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randint(0, 256, (3, 20, side), generator=random, dtype=torch.uint8) for side in (16, 20, 30)]


def drawn(pixels: Pixels, vit: ViT) -> Tensor:
    random = torch.Generator().manual_seed(4)
    return render(
        stage_augmented(pixels, vit.preprocessing, vit.device, vit.dtype, random), vit.preprocessing, vit.dtype
    )


def test_without_augmentation_it_is_the_evaluation_transform_and_draws_nothing(tiny: ViT) -> None:
    random = torch.Generator().manual_seed(0)
    before = random.get_state()
    inputs = training_input(chunk(), tiny.preprocessing, tiny, "none", random)
    assert torch.equal(inputs, evaluation_input(chunk(), tiny.preprocessing, tiny.device, tiny.dtype))
    assert torch.equal(random.get_state(), before)


def test_crop_and_flip_draw_from_the_given_random_numbers(tiny: ViT) -> None:
    how = tiny.preprocessing
    inputs = training_input(chunk(), how, tiny, "crop_flip", torch.Generator().manual_seed(4))
    expected = drawn(chunk(), tiny)
    assert torch.equal(inputs, expected)
    assert inputs.dtype == tiny.dtype
    assert not torch.equal(inputs, evaluation_input(chunk(), how, tiny.device, tiny.dtype))


@pytest.mark.parametrize("pixels", [chunk(), chunk()[:1], torch.stack([chunk()[1]] * 2)[..., :16, :16]], ids=len)
def test_two_inputs_staged_one_behind_the_other_are_told_apart(tiny: ViT, pixels: Pixels) -> None:
    how, random = tiny.preprocessing, torch.Generator().manual_seed(4)
    first = stage_training(pixels, how, tiny, "crop_flip", random)
    second = stage_evaluation(pixels, how, tiny.device, tiny.dtype)
    found = [render(staged, how, tiny.dtype) for staged in split_staged((*first, *second))]
    expected = drawn(pixels, tiny)
    assert len(found) == 2
    assert torch.equal(found[0], expected)
    assert torch.equal(found[1], evaluation_input(pixels, how, tiny.device, tiny.dtype))
    assert len(split_staged(first)) == 1
