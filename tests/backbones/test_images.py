"""What may be handed over as images, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from prol.backbones.images import read_images


def random_pixels(*shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(sum(shape)).integers(0, 256, shape, dtype=np.uint8)


def check(read: list[Tensor], expected: list[NDArray[np.uint8]]) -> None:
    """`expected` are images `[H, W, 3]`."""
    assert [image.dtype for image in read] == [torch.uint8] * len(expected)
    assert [image.permute(1, 2, 0).numpy().tolist() for image in read] == [image.tolist() for image in expected]


COLOUR = random_pixels(4, 7, 6, 3)


@pytest.mark.parametrize(
    "handed_over",
    [
        COLOUR,
        COLOUR.transpose(0, 3, 1, 2),
        torch.from_numpy(COLOUR),
        torch.from_numpy(COLOUR).permute(0, 3, 1, 2),
        list(COLOUR),
        tuple(COLOUR),
        [image.transpose(2, 0, 1) for image in COLOUR],
        [torch.from_numpy(image) for image in COLOUR],
        [torch.from_numpy(image).permute(2, 0, 1) for image in COLOUR],
        [Image.fromarray(image) for image in COLOUR],
        [COLOUR[0], torch.from_numpy(COLOUR[1]), Image.fromarray(COLOUR[2]), COLOUR[3].transpose(2, 0, 1)],
        COLOUR[:, ::-1][:, ::-1],
        np.asfortranarray(COLOUR),
    ],
    ids=[
        "array channels last",
        "array channels first",
        "tensor channels last",
        "tensor channels first",
        "list of arrays",
        "tuple of arrays",
        "list of arrays channels first",
        "list of tensors channels last",
        "list of tensors channels first",
        "list of PIL images",
        "mixed list",
        "array with negative strides",
        "array in Fortran order",
    ],
)
def test_every_accepted_form_gives_the_same_images(handed_over: Any) -> None:
    check(read_images(handed_over), list(COLOUR))


def test_images_of_many_sizes_keep_their_sizes() -> None:
    images = [random_pixels(5, 9, 3), random_pixels(31, 2, 3), random_pixels(1, 1, 3)]
    check(read_images(images), images)


def test_a_write_protected_array_is_read() -> None:
    locked = COLOUR.copy()
    locked.flags.writeable = False
    check(read_images(locked), list(COLOUR))


@pytest.mark.parametrize(
    "handed_over",
    [
        random_pixels(2, 5, 6),
        torch.from_numpy(random_pixels(2, 5, 6)),
        random_pixels(2, 5, 6)[..., None],
        random_pixels(2, 5, 6)[:, None],
        list(random_pixels(2, 5, 6)),
        [torch.from_numpy(image) for image in random_pixels(2, 5, 6)],
        [Image.fromarray(image) for image in random_pixels(2, 5, 6)],
    ],
    ids=["array", "tensor", "one channel last", "one channel first", "list", "list of tensors", "PIL"],
)
def test_grey_images_are_repeated_over_the_three_channels(handed_over: Any) -> None:
    check(read_images(handed_over), [np.stack([grey] * 3, axis=2) for grey in random_pixels(2, 5, 6)])


def test_an_alpha_channel_is_dropped() -> None:
    with_alpha = random_pixels(2, 8, 9, 4)
    expected = list(with_alpha[..., :3])
    check(read_images(with_alpha), expected)
    check(read_images(torch.from_numpy(with_alpha).permute(0, 3, 1, 2)), expected)


def test_what_is_transparent_in_a_pil_image_becomes_white() -> None:
    clear = np.zeros((4, 5, 4), dtype=np.uint8)
    clear[:2] = (200, 100, 50, 255)
    check(read_images([Image.fromarray(clear)]), [np.where(clear[..., 3:] > 0, clear[..., :3], 255)])


def test_a_photograph_is_read_upright_as_from_a_file(tmp_path: Path) -> None:
    notes = Image.Exif()
    notes[0x0112] = 6  # the camera was turned
    Image.fromarray(random_pixels(20, 40, 3)).save(tmp_path / "a.png", exif=notes)
    with Image.open(tmp_path / "a.png") as photograph:
        assert [tuple(image.shape) for image in read_images([photograph])] == [(3, 40, 20)]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_a_pil_image_of_any_mode_is_read_as_its_rgb_form(mode: str) -> None:
    image = Image.fromarray(random_pixels(6, 5, 3)).convert(mode)
    check(read_images([image]), [np.array(image.convert("RGB"))])


def test_where_both_readings_fit_arrays_are_channels_last_and_tensors_channels_first() -> None:
    cube = random_pixels(2, 3, 8, 3)
    check(read_images(cube), list(cube))
    check(read_images(torch.from_numpy(cube)), list(cube.transpose(0, 2, 3, 1)))
    check(read_images([cube[0], torch.from_numpy(cube[0])]), [cube[0], cube[0].transpose(1, 2, 0)])


@pytest.mark.parametrize("form", ["array", "tensor", "list of arrays", "list of tensors", "grey array"])
def test_reading_copies_nothing(form: str) -> None:
    original = COLOUR.copy()
    handed_over: Any = {
        "array": original,
        "tensor": torch.from_numpy(original),
        "list of arrays": list(original),
        "list of tensors": [torch.from_numpy(image) for image in original],
        "grey array": original[..., 0],
    }[form]
    read = read_images(handed_over)
    before = [image.clone() for image in read]
    original[:] = 255 - original
    assert all(torch.equal(a, 255 - b) for a, b in zip(read, before, strict=True))


def test_arrays_that_may_not_be_written_or_run_backwards_are_read_too() -> None:
    fixed = COLOUR.copy()
    fixed.setflags(write=False)
    check(read_images(fixed), list(COLOUR))
    check(read_images(COLOUR[::-1, :, ::-1]), list(COLOUR[::-1, :, ::-1]))


def test_reading_does_not_change_what_was_handed_over() -> None:
    array, tensor = COLOUR.copy(), torch.from_numpy(COLOUR.copy())
    read_images(array)
    read_images(tensor)
    assert np.array_equal(array, COLOUR)
    assert np.array_equal(tensor.numpy(), COLOUR)


def test_no_images_are_nothing() -> None:
    assert read_images([]) == []
    assert len(read_images(np.zeros((0, 8, 8, 3), dtype=np.uint8))) == 0


@pytest.mark.parametrize(
    "handed_over",
    [
        np.zeros((2, 8, 8, 3)),
        np.zeros((2, 8, 8, 3), dtype=np.float32),
        np.zeros((2, 8, 8, 3), dtype=np.float16),
        torch.zeros(2, 3, 8, 8),
        torch.zeros(2, 3, 8, 8, dtype=torch.float16),
        torch.zeros(2, 3, 8, 8, dtype=torch.bfloat16),
        torch.zeros(2, 3, 8, 8, requires_grad=True),
        [np.zeros((8, 8, 3))],
        [torch.zeros(3, 8, 8)],
    ],
    ids=[
        "float64 array",
        "float32 array",
        "float16 array",
        "float32 tensor",
        "float16 tensor",
        "bfloat16 tensor",
        "tensor with a gradient",
        "list of arrays",
        "list of tensors",
    ],
)
def test_floating_point_images_are_refused_with_the_conversion_to_make(handed_over: Any) -> None:
    with pytest.raises(ValueError, match=r"uint8.*got b?float\d+.*\* 255") as refusal:
        read_images(handed_over)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "handed_over",
    [np.full((1, 8, 8, 3), np.nan), torch.full((1, 3, 8, 8), torch.nan), [np.full((8, 8, 3), np.nan)]],
    ids=["array", "tensor", "list"],
)
def test_nan_is_named_in_the_refusal(handed_over: Any) -> None:
    with pytest.raises(ValueError, match="NaN"):
        read_images(handed_over)


@pytest.mark.parametrize("dtype", [np.int64, np.int8, np.uint16, np.bool_])
def test_other_number_types_are_refused(dtype: type[np.generic]) -> None:
    with pytest.raises(ValueError, match=f"uint8.*got {np.dtype(dtype).name}"):
        read_images(np.zeros((2, 8, 8, 3), dtype=dtype))


@pytest.mark.parametrize(
    ("handed_over", "says"),
    [
        (np.zeros((8, 8), dtype=np.uint8), r"got shape \(8, 8\)"),
        (np.zeros((1, 2, 8, 8, 3), dtype=np.uint8), r"got shape \(1, 2, 8, 8, 3\)"),
        (np.zeros((2, 8, 8, 2), dtype=np.uint8), "1, 3 or 4 channels"),
        (torch.zeros(2, 5, 8, 8, dtype=torch.uint8), "1, 3 or 4 channels"),
        ([np.zeros(8, dtype=np.uint8)], r"got shape \(8,\)"),
        ([np.zeros((1, 8, 8, 3), dtype=np.uint8)], r"got shape \(1, 8, 8, 3\)"),
        ([np.zeros((0, 8, 3), dtype=np.uint8)], "empty"),
        (np.zeros((2, 8, 0, 3), dtype=np.uint8), "empty"),
        (np.zeros((2, 1, 2_000_000), dtype=np.uint8), "2000000 x 1 pixels is too long"),
        ([torch.zeros(3, 10_001, 10, dtype=torch.uint8)], "10 x 10001 pixels is too narrow"),
        (Image.new("RGB", (8, 8)), r"\[image\]"),
        (["no/cat.jpg"], "there is no image 'no/cat.jpg'"),
        ([Path(__file__).parent], "is a folder"),
        ([Path(__file__)], "cannot be read: cannot identify image file"),
        ([None], "NoneType"),
        ("cat.jpg", r"a single file goes in a list, \['cat.jpg'\]"),
        (None, "NoneType"),
        (7, "int"),
        (iter([COLOUR[0]]), "iterator"),
    ],
)
def test_anything_else_is_refused_in_one_line(handed_over: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says) as refusal:
        read_images(handed_over)
    assert "\n" not in str(refusal.value)


def test_files_are_images(tmp_path: Path) -> None:
    for number, image in enumerate(COLOUR):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
    paths = [tmp_path / f"{number}.png" for number in range(len(COLOUR))]
    check(read_images([*paths[:2], *map(str, paths[2:])]), list(COLOUR))


def test_one_image_without_a_list_around_it_is_refused() -> None:
    for image in (COLOUR[0], torch.from_numpy(COLOUR[0])):
        with pytest.raises(ValueError, match=r"\[image\]"):
            read_images(image)
