"""The built-in data sets: handwritten digits, a hundred characters drawn for every seed, and noise for speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.data.base import ArraySplit, Dataset, Loaded

DIGITS_LICENCE = (
    "CC BY 4.0. E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, "
    "UCI Machine Learning Repository, https://doi.org/10.24432/C50P49"
)
GLYPHS_LICENCE = (
    "Rendered from the DejaVu fonts (Bitstream Vera licence) and the STIX fonts (SIL Open Font License 1.1)"
)

_INK_LEVELS = 16  # of the digits
SIDE = 48
TRAIN_PER_CLASS, TEST_PER_CLASS = 25, 10

_ONE = 1 << 12  # the number one in fixed point
_TURN_DEGREES = 15
_SCALE_PERCENT = (75, 115)
_SHIFT_PIXELS = 3
_CONTRAST = 90
_PAPER, _INK = (150, 256), (0, 120)  # dark on light: a small backbone should learn shapes before colours
_TEXTURE_CELL = 8

Ints = NDArray[np.int32]

_DEGREES = [math.radians(degrees) for degrees in range(-_TURN_DEGREES, _TURN_DEGREES + 1)]
_TURNS: Ints = np.array(
    [[round(math.cos(angle) * _ONE) for angle in _DEGREES], [round(math.sin(angle) * _ONE) for angle in _DEGREES]],
    dtype=np.int32,
)
"""Cosine and sine of every whole degree, `[2, turns]` in fixed point."""


def digits(seed: int = 0, data: str | Path | None = None) -> Dataset:
    """The ten digits written by 13 people, as 8 x 8 images: 1,438 train and 359 test images.

    Args:
        seed: has no effect: the train and test splits are fixed, so that accuracies can be compared.
        data: must be None: the images are built in.

    References:
        E. Alpaydin, C. Kaynak (1998). Cascading classifiers. Kybernetika 34(4), 369-374.

    >>> data = digits()
    >>> len(data.train.labels), len(data.test.labels), data.class_names[:3]
    (1438, 359, ('0', '1', '2'))
    >>> data.train.load([0]).images[0].shape
    (8, 8, 3)
    """
    del seed
    arrays = _read_arrays("digits", data)
    grey = (arrays["images"].astype(np.uint16) * 255 // _INK_LEVELS).astype(np.uint8)
    images = np.repeat(grey[..., None], 3, axis=-1)
    labels, test = arrays["labels"].astype(np.int64), arrays["test"]
    return Dataset(
        name="digits",
        class_names=tuple(str(digit) for digit in range(10)),
        train=ArraySplit(images[~test], labels[~test]),
        test=ArraySplit(images[test], labels[test]),
        tasks=5,
        licence=DIGITS_LICENCE,
    )


def glyphs(seed: int = 0, data: str | Path | None = None) -> Dataset:
    """One hundred letters, digits and symbols as 48 x 48 colour images: 25 train and 10 test images of each.

    All arithmetic is on whole numbers, so that a seed gives the same images to the bit on every machine.

    Args:
        seed: draws the font, rotation, size, position, colours, background and noise of every image.
        data: must be None: the characters are built in.

    >>> data = glyphs()
    >>> len(data.train.labels), len(data.test.labels), data.class_names[10:13]
    (2500, 1000, ('A', 'B', 'C'))
    >>> data.test.load([999]).images[0].shape
    (48, 48, 3)
    """
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, got {seed}")
    arrays = _read_arrays("glyphs", data)
    masks = arrays["masks"]
    return Dataset(
        name="glyphs",
        class_names=tuple(str(character) for character in arrays["characters"]),
        train=_split(masks, TRAIN_PER_CLASS, seed, part=0),
        test=_split(masks, TEST_PER_CLASS, seed, part=1),
        tasks=10,
        licence=GLYPHS_LICENCE,
    )


def _read_arrays(name: str, data: str | Path | None) -> dict[str, NDArray[Any]]:
    if data is not None:
        raise ValueError(
            f"data set {name!r} is built in and takes no data, got {str(data)!r}; for your own use 'folder'"
        )
    with (
        (files("prol.data") / "arrays" / f"{name}.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as arrays,
    ):
        return dict(arrays)


def _split(masks: NDArray[np.uint8], per_class: int, seed: int, part: int) -> ArraySplit:
    images = [
        _draw(of_character, per_class, np.random.default_rng([seed, part, label]))
        for label, of_character in enumerate(masks)
    ]
    return ArraySplit(np.concatenate(images), np.repeat(np.arange(len(masks), dtype=np.int64), per_class))


def _draw(fonts: NDArray[np.uint8], count: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """`count` images of one character, from its masks `[fonts, side, side]`."""
    chosen = fonts[random.integers(len(fonts), size=count)].astype(np.int32)
    ink = _place(chosen, random)[..., None]
    ground = _background(count, random)
    colour = _contrasting(ground, random)
    image = (ground * (255 - ink) + colour[:, None, None, :] * ink + 127) // 255
    strength = random.integers(1, 17, size=(count, 1, 1, 1))
    image += (random.integers(-255, 256, size=image.shape, dtype=np.int32) * strength) >> 8
    drawn: NDArray[np.uint8] = np.clip(image, 0, 255).astype(np.uint8)
    return drawn


def _place(masks: Ints, random: np.random.Generator) -> Ints:
    """Rotates, scales and shifts masks `[N, side, side]` onto the image: bilinear, `[N, SIDE, SIDE]` of 0 to 255."""
    count, side = masks.shape[:2]
    turns = random.integers(-_TURN_DEGREES, _TURN_DEGREES + 1, size=count)
    scales = random.integers(_SCALE_PERCENT[0], _SCALE_PERCENT[1] + 1, size=count, dtype=np.int32)
    shifts = random.integers(-_SHIFT_PIXELS, _SHIFT_PIXELS + 1, size=(2, count, 1, 1), dtype=np.int32)
    cos, sin = (_TURNS[:, turns + _TURN_DEGREES] * 100 // scales)[:, :, None, None]

    # Twice the distance from the centre is whole, as the centre lies between two pixels.
    steps = 2 * np.arange(SIDE, dtype=np.int32) - (SIDE - 1)
    down, right = steps[None, :, None] - 2 * shifts[0], steps[None, None, :] - 2 * shifts[1]
    middle = (side - 1) * _ONE
    row = (cos * down - sin * right + middle) >> 1
    column = (sin * down + cos * right + middle) >> 1
    return _bilinear(masks, row, column)


def _bilinear(masks: Ints, row: Ints, column: Ints) -> Ints:
    """Values of masks `[N, side, side]` at fixed-point positions `[N, H, W]`; the border of a mask is empty."""
    last = masks.shape[1] - 2
    top, left = np.clip(row >> 12, 0, last), np.clip(column >> 12, 0, last)
    below = np.clip(row - top * _ONE, 0, _ONE) >> 4
    beside = np.clip(column - left * _ONE, 0, _ONE) >> 4
    image = np.arange(len(masks))[:, None, None]
    upper = masks[image, top, left] * (256 - beside) + masks[image, top, left + 1] * beside
    lower = masks[image, top + 1, left] * (256 - beside) + masks[image, top + 1, left + 1] * beside
    blended: Ints = (upper * (256 - below) + lower * below + (1 << 15)) >> 16
    return blended


def _background(count: int, random: np.random.Generator) -> Ints:
    """Plain, graded or clouded backgrounds `[N, SIDE, SIDE, 3]`."""
    base = random.integers(*_PAPER, size=(count, 1, 1, 3), dtype=np.int32)
    kind = random.integers(3, size=(count, 1, 1, 1))

    rise = random.integers(-80, 81, size=(count, 1, 1, 3), dtype=np.int32)
    slopes = random.integers(-4, 5, size=(2, count, 1, 1, 1), dtype=np.int32)
    steps = 2 * np.arange(SIDE, dtype=np.int32) - (SIDE - 1)
    along = slopes[0] * steps[None, :, None, None] + slopes[1] * steps[None, None, :, None]
    graded = rise * along // (8 * SIDE)

    cells = SIDE // _TEXTURE_CELL + 1
    heights = random.integers(-60, 61, size=(count, cells, cells, 1), dtype=np.int32)
    clouded = _stretch(_stretch(heights).swapaxes(1, 2)).swapaxes(1, 2)

    ground = base + np.where(kind == 1, graded, 0) + np.where(kind == 2, clouded, 0)
    return np.clip(ground, 0, 255)


def _stretch(heights: Ints) -> Ints:
    """Linear interpolation along axis 1: `[N, cells, ...]` becomes `[N, SIDE, ...]`."""
    cell, part = np.divmod(np.arange(SIDE, dtype=np.int32), _TEXTURE_CELL)
    part = part.reshape(-1, 1, 1)
    stretched: Ints = (heights[:, cell] * (_TEXTURE_CELL - part) + heights[:, cell + 1] * part) // _TEXTURE_CELL
    return stretched


def _contrasting(ground: Ints, random: np.random.Generator) -> Ints:
    """A colour `[N, 3]` for each background: the first of sixteen with enough contrast in brightness, else the best."""
    weights = np.array([299, 587, 114], dtype=np.int32)
    brightness = (ground @ weights // 1000).reshape(len(ground), -1)
    colours = random.integers(*_INK, size=(len(ground), 16, 3), dtype=np.int32)
    own = colours @ weights // 1000
    darkest, lightest = brightness.min(axis=1)[:, None], brightness.max(axis=1)[:, None]
    contrast = np.maximum(np.maximum(darkest - own, own - lightest), 0)
    best = np.argmax(np.minimum(contrast, _CONTRAST), axis=1)
    chosen: Ints = colours[np.arange(len(ground)), best]
    return chosen


TRAIN_SIZES = (2543, 2901, 1741, 2324, 2865, 2219, 2280, 1800, 2500, 2827)
TEST_SIZES = (688, 705, 434, 609, 654, 551, 562, 477, 610, 710)
"""The number of images of each of ten tasks, as in PROL's paper."""


@dataclass(frozen=True)
class GeneratedSplit:
    """Random images, generated from their index when they are loaded; none is stored."""

    labels: NDArray[np.int64]
    side: int
    seed: tuple[int, int]

    def load(self, indices: Sequence[int] | NDArray[np.int64]) -> Loaded:
        wanted = np.asarray(indices, dtype=np.int64)
        shape = (self.side, self.side, 3)
        generators = [np.random.default_rng([*self.seed, int(index)]) for index in wanted]
        return Loaded([random.integers(0, 256, shape, dtype=np.uint8) for random in generators], wanted)


def generated(
    classes: int = 200,
    side: int = 224,
    test_per_class: int | None = None,
    seed: int = 0,
    data: str | Path | None = None,
) -> Dataset:
    """Noise in the sizes of ImageNet-R's ten tasks, for measuring speed: there is nothing in it to learn.

    Args:
        classes: the number of classes, split over ten tasks; the images of a task are distributed evenly over its
            classes.
        side: side of the square images, in pixels.
        test_per_class: test images of each class; as in ImageNet-R by default.
        seed: draws the pixels.
        data: must be None: images are generated when they are loaded.

    >>> noise = generated()
    >>> len(noise.train.labels), len(noise.test.labels), len(noise.class_names)
    (24000, 6000, 200)
    """
    if data is not None:
        raise ValueError(f"data set 'generated' takes no data, got {str(data)!r}; for your own use 'folder'")
    for name, value, least in (("classes", classes, len(TRAIN_SIZES)), ("side", side, 1), ("seed", seed, 0)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, got {value}")
    if test_per_class is not None and test_per_class < 1:
        raise ValueError(f"test_per_class must be at least 1, got {test_per_class}")
    test = _spread(TEST_SIZES, classes)
    if test_per_class is not None:
        test = np.repeat(np.arange(classes, dtype=np.int64), test_per_class)
    digits = len(str(classes - 1))
    return Dataset(
        name="generated",
        class_names=tuple(f"noise {number:0{digits}d}" for number in range(classes)),
        train=GeneratedSplit(_spread(TRAIN_SIZES, classes), side, (seed, 0)),
        test=GeneratedSplit(test, side, (seed, 1)),
        tasks=len(TRAIN_SIZES),
        licence="Noise; nobody's",
    )


def _spread(sizes: Sequence[int], classes: int) -> NDArray[np.int64]:
    """The label of each image: the images of each task are distributed evenly over its classes."""
    tasks = np.array_split(np.arange(classes, dtype=np.int64), len(sizes))
    return np.concatenate([np.sort(np.resize(own, size)) for own, size in zip(tasks, sizes, strict=True)])
