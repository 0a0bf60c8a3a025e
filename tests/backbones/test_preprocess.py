"""From pixels to the network's input: the values, the augmentation and its randomness."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision.transforms.v2.functional as TV
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import prol
from prol.backbones import Pixels, Preprocessing, ViT, evaluation_input, render, stage_augmented
from prol.backbones.images import read_images
from prol.backbones.preprocess import (
    _canvas,
    _canvases,
    _takes_canvases,
    stage_evaluation,
)
from prol.backbones.resampling import random_boxes
from prol.methods.gradient import split_staged

CPU = torch.device("cpu")
PLAIN = Preprocessing(size=16, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def pixels(height: int, width: int, seed: int = 0) -> Tensor:
    drawn = np.random.default_rng(seed).integers(0, 256, (3, height, width), dtype=np.uint8)
    return torch.from_numpy(drawn)


def gradients(height: int, width: int) -> Tensor:
    """Red holds the row of each pixel, green its column, blue is white."""
    rows = torch.arange(height).view(-1, 1).expand(height, width)
    columns = torch.arange(width).view(1, -1).expand(height, width)
    return torch.stack([rows, columns, torch.full_like(rows, 255)]).to(torch.uint8)


def evaluate(images: list[Tensor], how: Preprocessing, dtype: torch.dtype = torch.float64) -> Tensor:
    return evaluation_input(images, how, CPU, dtype)


def drawn_from(random: torch.Generator, images: list[Tensor], how: Preprocessing = PLAIN) -> Tensor:
    return render(stage_augmented(images, how, CPU, torch.float64, random), how, torch.float64)


def augment(images: list[Tensor], how: Preprocessing = PLAIN, seed: int = 0) -> Tensor:
    return drawn_from(torch.Generator().manual_seed(seed), images, how)


def interpolated(image: Tensor, height: int, width: int, mode: str) -> Tensor:
    whole = image.unsqueeze(0).double() / 255
    return F.interpolate(whole, (height, width), mode=mode, antialias=True, align_corners=False).clamp(0, 1)


# The evaluation transform


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("side", [4, 13, 16, 40, 97], ids=lambda side: f"{side} pixels")
def test_a_square_image_is_resized_as_torch_interpolates_with_antialiasing(side: int, mode: Any) -> None:
    image = pixels(side, side)
    expected = interpolated(image, 16, 16, mode)
    torch.testing.assert_close(evaluate([image], replace(PLAIN, interpolation=mode)), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("height", "width"), [(40, 80), (96, 32), (16, 24), (10, 30)])
def test_the_shorter_side_is_resized_and_the_centre_cut_out(height: int, width: int, mode: Any) -> None:
    image = pixels(height, width)
    short = min(height, width)
    resized = interpolated(image, 16 * height // short, 16 * width // short, mode)
    expected = TV.center_crop(resized, [16, 16])
    torch.testing.assert_close(evaluate([image], replace(PLAIN, interpolation=mode)), expected, rtol=0, atol=1e-9)


def test_a_crop_share_of_seven_eighths_is_resize_256_and_centre_crop_224() -> None:
    image = pixels(100, 100)
    expected = TV.center_crop(interpolated(image, 256, 256, "bicubic"), [224, 224])
    how = replace(PLAIN, size=224, crop_pct=0.875)
    torch.testing.assert_close(evaluate([image], how), expected, rtol=0, atol=1e-9)


def test_the_result_is_close_to_what_torchvision_makes_of_a_pil_image() -> None:
    from PIL import Image

    image = pixels(90, 90)
    picture = Image.fromarray(image.permute(1, 2, 0).numpy())
    resized = TV.resize(picture, [16, 16], interpolation=TV.InterpolationMode.BICUBIC)
    expected = torch.from_numpy(np.array(resized)).permute(2, 0, 1).double() / 255
    assert (evaluate([image], PLAIN)[0] - expected).abs().max() < 1.01 / 255


def test_an_image_of_the_right_size_passes_unchanged() -> None:
    image = pixels(16, 16)
    torch.testing.assert_close(evaluate([image], PLAIN)[0], image.double() / 255, rtol=0, atol=1e-12)


def test_values_are_scaled_by_mean_and_deviation_of_each_channel() -> None:
    how = replace(PLAIN, mean=(0.1, 0.2, 0.3), std=(0.5, 0.25, 2.0))
    image = torch.tensor([255, 0, 51], dtype=torch.uint8).view(3, 1, 1).expand(3, 16, 16)
    expected = [(1 - 0.1) / 0.5, (0 - 0.2) / 0.25, (0.2 - 0.3) / 2.0]
    for channel, value in enumerate(expected):
        plane = evaluate([image], how)[0, channel]
        torch.testing.assert_close(plane, torch.full_like(plane, value), rtol=0, atol=1e-12)


def test_a_cubic_filter_does_not_leave_the_range_of_values() -> None:
    edge = (torch.arange(8) < 4).to(torch.uint8).mul(255).expand(3, 8, 8)
    free = F.interpolate(edge.unsqueeze(0).double() / 255, (16, 16), mode="bicubic", antialias=True)
    assert free.min() < 0
    assert free.max() > 1
    values = evaluate([edge], PLAIN)
    assert values.min() == 0
    assert values.max() == 1


def test_float32_input_is_the_float64_input_rounded() -> None:
    image = pixels(50, 33)
    in_float32 = evaluate([image], PLAIN, torch.float32)
    assert in_float32.dtype == torch.float32
    torch.testing.assert_close(in_float32.double(), evaluate([image], PLAIN), rtol=0, atol=1e-6)


def test_images_of_mixed_sizes_give_what_each_gives_alone() -> None:
    images = [pixels(20, 30), pixels(16, 16), pixels(20, 30, seed=1), pixels(7, 70), pixels(16, 16, seed=1)]
    together = evaluate(images, PLAIN)
    assert together.shape == (5, 3, 16, 16)
    for image, row in zip(images, together, strict=True):
        torch.testing.assert_close(evaluate([image], PLAIN)[0], row, rtol=0, atol=1e-12)


# A method's own choice


@pytest.mark.parametrize(
    ("input_range", "low", "high"),
    [("backbone", -1.0, 3.0), ("unit", 0.0, 1.0), ("symmetric", -1.0, 1.0)],
)
def test_an_input_range_maps_black_and_white(input_range: Any, low: float, high: float) -> None:
    how = replace(PLAIN, mean=(0.25,) * 3, std=(0.25,) * 3).overridden(input_range)
    black, white = torch.zeros(3, 16, 16, dtype=torch.uint8), torch.full((3, 16, 16), 255, dtype=torch.uint8)
    values = evaluate([black, white], how)
    torch.testing.assert_close(values[0], torch.full_like(values[0], low), rtol=0, atol=1e-12)
    torch.testing.assert_close(values[1], torch.full_like(values[1], high), rtol=0, atol=1e-12)


def test_an_override_changes_only_what_it_names() -> None:
    how = Preprocessing(size=32, crop_pct=0.9, interpolation="bilinear", mean=(0.1,) * 3, std=(0.2,) * 3)
    assert how.overridden() == how
    assert how.overridden(crop_pct=0.5) == replace(how, crop_pct=0.5)
    assert how.overridden("unit") == replace(how, mean=(0.0,) * 3, std=(1.0,) * 3)


# The augmentation: random resized crop (5 to 100 % of the area, ratio 3/4 to 4/3), bilinear, and a flip


def seen_box(height: int, width: int, seed: int) -> tuple[float, float, float, float]:
    """First and last row and column that an augmented gradient image shows at its outermost pixels."""
    shown = augment([gradients(height, width)], seed=seed)[0] * 255
    return shown[0].min().item(), shown[0].max().item(), shown[1].min().item(), shown[1].max().item()


@given(height=st.integers(1, 120), width=st.integers(1, 120), seed=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_crops_lie_inside_the_image(height: int, width: int, seed: int) -> None:
    shown = augment([gradients(height, width)], seed=seed)[0]
    assert shown.isfinite().all()
    torch.testing.assert_close(shown[2], torch.ones_like(shown[2]), rtol=0, atol=1e-9)
    top, bottom, left, right = seen_box(height, width, seed)
    assert top >= -1e-9
    assert bottom <= height - 1 + 1e-9
    assert left >= -1e-9
    assert right <= width - 1 + 1e-9


def test_an_augmented_image_is_some_crop_of_whole_pixels_resized_as_torchvision_does() -> None:
    image = pixels(12, 10)
    shown = augment([image], seed=3)[0]
    candidates = [
        (top, left, height, width)
        for height in range(1, 13)
        for width in range(1, 11)
        for top in range(13 - height)
        for left in range(11 - width)
        if 0.5 < width / height < 2
    ]
    errors = []
    for box in candidates:
        cut = TV.resized_crop(
            image.double() / 255, *box, size=[16, 16], interpolation=TV.InterpolationMode.BILINEAR, antialias=True
        )
        errors.append(min((cut - shown).abs().max().item(), (cut.flip(2) - shown).abs().max().item()))
    assert min(errors) < 1e-9


def test_crops_cover_5_to_100_percent_with_ratios_from_three_quarters_to_four_thirds() -> None:
    side, count = 100, 500
    shown = augment([gradients(side, side)] * count, replace(PLAIN, size=40)) * 255
    # Away from the edges the resize is exactly linear, so two pixels, a fifth apart, tell the length of the crop.
    heights = (shown[:, 0, 24, 0] - shown[:, 0, 16, 0]) * 5
    widths = (shown[:, 1, 0, 24] - shown[:, 1, 0, 16]).abs() * 5
    share, ratio = heights * widths / side**2, widths / heights
    assert 0.045 < share.min() < 0.10
    assert 0.93 < share.max() <= 1.01
    assert abs(share.mean() - 0.5) < 0.06
    assert 0.72 < ratio.min() < 0.80
    assert 1.26 < ratio.max() < 1.38


def test_about_half_of_the_images_are_flipped() -> None:
    shown = augment([gradients(32, 32)] * 1000)
    assert not (shown[:, 0, -1] < shown[:, 0, 0]).any(), "images are never turned upside down"
    flipped = (shown[:, 1, 0, 0] > shown[:, 1, 0, -1]).double().mean()
    assert 0.45 < flipped < 0.55


def test_the_same_seed_gives_the_same_augmentation_and_another_seed_another() -> None:
    images = [pixels(40, 40), pixels(20, 50)]
    assert torch.equal(augment(images, seed=1), augment(images, seed=1))
    assert not torch.equal(augment(images, seed=1), augment(images, seed=2))


def test_two_draws_in_a_row_differ() -> None:
    random = torch.Generator().manual_seed(0)
    first = drawn_from(random, [pixels(40, 40)])
    assert not torch.equal(first, drawn_from(random, [pixels(40, 40)]))


def test_augmentation_leaves_the_global_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    augment([pixels(40, 40)])
    assert torch.equal(before, torch.get_rng_state())


def test_augmented_values_are_scaled_like_evaluated_ones() -> None:
    white = torch.full((3, 9, 9), 255, dtype=torch.uint8)
    how = replace(PLAIN, mean=(0.5,) * 3, std=(0.25,) * 3)
    torch.testing.assert_close(augment([white], how), torch.full((1, 3, 16, 16), 2.0).double(), rtol=0, atol=1e-9)


def test_an_image_too_narrow_for_any_crop_gives_its_centre() -> None:
    shown = augment([gradients(100, 1)])[0] * 255
    assert shown.isfinite().all()
    assert 45 < shown[0].mean() < 54


def test_pixels_as_read_go_through_both_transforms() -> None:
    read = read_images([np.full((9, 5), 255, dtype=np.uint8), np.zeros((4, 4, 4), dtype=np.uint8)])
    torch.testing.assert_close(evaluate(read, PLAIN)[0], torch.ones(3, 16, 16).double(), rtol=0, atol=1e-9)
    assert augment(read).shape == (2, 3, 16, 16)


@pytest.mark.parametrize("crop_pct", [0.0, -1.0, 1.5, float("nan")])
@pytest.mark.parametrize("method", ["ncm", "head_only", "prol"])
def test_a_crop_that_cannot_be_is_refused_by_every_method(method: str, crop_pct: float, tiny: ViT) -> None:
    with pytest.raises(ValueError, match="crop_pct"):
        prol.create(method, tiny, crop_pct=crop_pct, **({"blocks": 3} if method == "prol" else {}))


def test_photographs_are_resampled_one_by_one_to_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    how, pixels = (
        Preprocessing(size=16),
        read_images(np.random.default_rng(0).integers(0, 256, (5, 20, 30, 3), np.uint8)),
    )
    together = evaluation_input(pixels, how, torch.device("cpu"), torch.float32)
    monkeypatch.setattr("prol.backbones.preprocess._MOST_PIXELS", 1)
    torch.testing.assert_close(evaluation_input(pixels, how, torch.device("cpu"), torch.float32), together)


def test_channels_last_and_channels_first_images_give_the_same_bits() -> None:
    array = np.random.default_rng(1).integers(0, 256, (6, 20, 30, 3), np.uint8)
    lists = read_images(array), read_images(torch.from_numpy(array.transpose(0, 3, 1, 2).copy()))
    one, other = (evaluation_input(images, Preprocessing(size=16), CPU, torch.float32) for images in lists)
    assert torch.equal(one, other)


def test_images_of_the_networks_own_size_are_not_resampled() -> None:
    array = np.random.default_rng(1).integers(0, 256, (2, 16, 16, 3), np.uint8)
    how = Preprocessing(size=16, mean=(0.0,) * 3, std=(1.0,) * 3)
    shown = evaluation_input(read_images(array), how, CPU, torch.float32)
    assert torch.equal(shown, torch.from_numpy(array).permute(0, 3, 1, 2).float() / 255)


def test_images_of_several_sizes_come_out_in_their_own_order() -> None:
    sizes = [(9, 9), (12, 20), (9, 9), (30, 7), (12, 20)]
    images = [torch.full((3, *size), 50 * i, dtype=torch.uint8) for i, size in enumerate(sizes)]
    how = Preprocessing(size=8, mean=(0.0,) * 3, std=(1.0,) * 3)
    shown = evaluation_input(images, how, CPU, torch.float64)
    torch.testing.assert_close(shown[:, 0, 4, 4] * 255, torch.arange(5).double() * 50)
    drawn = augment(images, how)
    torch.testing.assert_close(drawn[:, 2, 4, 4] * 255, torch.arange(5).double() * 50)


def test_a_mirrored_crop_is_the_crop_from_right_to_left() -> None:
    image, seen = pixels(24, 24), set()
    for seed in range(12):
        shown = augment([image, image.flip(2)], seed=seed)
        random = torch.Generator().manual_seed(seed)
        boxes = random_boxes(torch.full((2, 2), 24.0, dtype=torch.float64), random)
        mirrored = bool((torch.rand(2, generator=random) < 0.5)[0])
        seen.add(mirrored)
        (top, height), (left, width) = boxes[0].int().tolist()
        crop = image[:, top : top + height, left : left + width].unsqueeze(0).double() / 255
        expected = torch.nn.functional.interpolate(crop, (16, 16), mode="bilinear", antialias=True)[0]
        torch.testing.assert_close(shown[0], expected.flip(2) if mirrored else expected, rtol=0, atol=1e-6)
    assert seen == {True, False}


@pytest.mark.parametrize("how", [PLAIN, replace(PLAIN, interpolation="bilinear", crop_pct=0.875)], ids=str)
def test_images_of_several_sizes_on_one_canvas_come_out_as_each_by_itself(
    how: Preprocessing, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [
        pixels(9, 9),
        pixels(70, 20),
        pixels(33, 64).permute(1, 2, 0).contiguous().permute(2, 0, 1),
        pixels(16, 16),
    ]
    alone = evaluate(images, how), augment(images, how)
    monkeypatch.setattr("prol.backbones.preprocess._takes_canvases", lambda *_: True)
    staged = stage_evaluation(images, how, CPU, torch.float64)
    assert [tuple(tensor.shape) for tensor in staged] == [(4, 3, 128, 64), (4, 6)]
    for most in (1 << 23, 128 * 64 * 2, 1):  # all on one canvas, on several, each on its own
        monkeypatch.setattr("prol.backbones.preprocess._MOST_PIXELS", most)
        torch.testing.assert_close(evaluate(images, how), alone[0], rtol=0, atol=1e-9)
        torch.testing.assert_close(augment(images, how), alone[1], rtol=0, atol=1e-9)


def test_canvases_are_for_gpus_and_images_of_several_sizes_and_are_bounded() -> None:
    gpu = torch.device("cuda")
    mixed, huge = [pixels(9, 9), pixels(70, 20)], torch.zeros(1).byte().expand(3, 4000, 3000)
    assert _takes_canvases(mixed, gpu)
    assert not _takes_canvases(mixed, CPU)
    assert not _takes_canvases([pixels(9, 9), pixels(9, 9)], gpu)
    assert not _takes_canvases(torch.zeros(2, 3, 8, 8, dtype=torch.uint8), gpu)
    assert _canvas(mixed) == (128, 64)
    assert _canvases([*mixed, huge, *mixed]) == [[0, 1], [2], [3, 4]]


def training_chunk() -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randint(0, 256, (3, 20, side), generator=random, dtype=torch.uint8) for side in (16, 20, 30)]


def drawn_for(pixels: Pixels, vit: ViT) -> Tensor:
    random = torch.Generator().manual_seed(4)
    return render(
        stage_augmented(pixels, vit.preprocessing, vit.device, vit.dtype, random), vit.preprocessing, vit.dtype
    )


def test_without_augmentation_it_is_the_evaluation_transform_and_draws_nothing(tiny: ViT) -> None:
    learner = prol.create("ncm", tiny, augment="none")
    before = learner.random.get_state()
    inputs = learner.training_input(training_chunk())
    assert torch.equal(inputs, evaluation_input(training_chunk(), tiny.preprocessing, tiny.device, tiny.dtype))
    assert torch.equal(learner.random.get_state(), before)


def test_crop_and_flip_draw_from_the_given_random_numbers(tiny: ViT) -> None:
    how = tiny.preprocessing
    inputs = prol.create("ncm", tiny, augment="crop_flip", seed=4).training_input(training_chunk())
    expected = drawn_for(training_chunk(), tiny)
    assert torch.equal(inputs, expected)
    assert inputs.dtype == tiny.dtype
    assert not torch.equal(inputs, evaluation_input(training_chunk(), how, tiny.device, tiny.dtype))


@pytest.mark.parametrize(
    "pixels", [training_chunk(), training_chunk()[:1], torch.stack([training_chunk()[1]] * 2)[..., :16, :16]], ids=len
)
def test_two_inputs_staged_one_behind_the_other_are_told_apart(tiny: ViT, pixels: Pixels) -> None:
    how, random = tiny.preprocessing, torch.Generator().manual_seed(4)
    first = tiny.stage(pixels, how, random)
    second = stage_evaluation(pixels, how, tiny.device, tiny.dtype)
    found = [render(staged, how, tiny.dtype) for staged in split_staged((*first, *second))]
    expected = drawn_for(pixels, tiny)
    assert len(found) == 2
    assert torch.equal(found[0], expected)
    assert torch.equal(found[1], evaluation_input(pixels, how, tiny.device, tiny.dtype))
    assert len(split_staged(first)) == 1
