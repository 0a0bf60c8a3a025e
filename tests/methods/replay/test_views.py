"""Views of small images: each operation against torchvision or a slow transcription, and how they are drawn."""

from __future__ import annotations

import colorsys
import math

import pytest
import torch
import torch.nn.functional as F
import torchvision.transforms.v2.functional as tv
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.methods.replay.views import (
    FULL,
    MOST_VERSIONS,
    NUMBERS,
    PARTIAL,
    Mixture,
    ViewKind,
    apply_views,
    draw_beta,
    draw_views,
    greyed,
    halves_mirrored,
    jittered,
    mixed_cross_entropy,
    mixed_images,
    mixed_rows,
    pseudo_classes,
    turned_hue,
    versions,
    with_halves_mirrored,
)

SIZE = 12

CLOSE = {"rtol": 0, "atol": 1e-10}

# torchvision weighs red with 0.2989 where Rec. 601 and this library have 0.299.
GREY_CLOSE = {"rtol": 0, "atol": 3e-4}


def random_images(count: int = 4, seed: int = 0, size: int = SIZE) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def nothing_drawn(count: int, size: int = SIZE) -> Tensor:
    """Rows of numbers for the image as it is: all of it, not mirrored, factors that would matter but do not count."""
    drawn = torch.zeros(count, NUMBERS, dtype=torch.float64)
    drawn[:, 1] = drawn[:, 3] = size
    drawn[:, 5:9] = torch.tensor([0.7, 1.3, 0.6, 0.1], dtype=torch.float64)
    return drawn


def drawn_from(kind: ViewKind, count: int, seed: int = 0, size: int = 32) -> Tensor:
    return draw_views(kind, count, size, torch.Generator().manual_seed(seed))


def require_share(found: Tensor, chance: float) -> None:
    """Within five deviations of a binomial."""
    n = len(found)
    deviation = (n * chance * (1 - chance)) ** 0.5
    assert abs(float(found.double().sum()) - n * chance) < 5 * deviation


boxes = st.integers(1, SIZE).flatmap(lambda n: st.tuples(st.integers(0, SIZE - n), st.just(n)))


@given(rows=boxes, columns=boxes, mirrored=st.booleans(), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_resized_crop_is_torchvisions(
    rows: tuple[int, int], columns: tuple[int, int], mirrored: bool, seed: int
) -> None:
    images, drawn = random_images(1, seed), nothing_drawn(1)
    drawn[0, :5] = torch.tensor([*rows, *columns, float(mirrored)])
    expected = tv.resized_crop(
        images, rows[0], columns[0], rows[1], columns[1], [SIZE, SIZE], tv.InterpolationMode.BILINEAR, antialias=True
    )
    found = apply_views(ViewKind(least_area=0.2), images, drawn)
    torch.testing.assert_close(found, tv.horizontal_flip(expected) if mirrored else expected, rtol=0, atol=1e-6)


@given(down=st.integers(-4, 4), right=st.integers(-4, 4), mirrored=st.booleans(), seed=st.integers(0, 9))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_shift_is_padding_with_black_and_cutting_out(down: int, right: int, mirrored: bool, seed: int) -> None:
    images, drawn = random_images(1, seed), nothing_drawn(1)
    drawn[0, 0], drawn[0, 2], drawn[0, 4] = down, right, float(mirrored)
    cut = F.pad(images, (4, 4, 4, 4))[:, :, 4 + down : 4 + down + SIZE, 4 + right : 4 + right + SIZE]
    assert torch.equal(apply_views(PARTIAL, images, drawn), cut.flip(3) if mirrored else cut)


@pytest.mark.parametrize("factor", [0.6, 0.9, 1.0, 1.4])
@pytest.mark.parametrize(
    ("which", "reference", "close"),
    [
        (0, tv.adjust_brightness, CLOSE),
        (1, tv.adjust_contrast, GREY_CLOSE),
        (2, tv.adjust_saturation, GREY_CLOSE),
    ],
    ids=["brightness", "contrast", "saturation"],
)
def test_brightness_contrast_and_saturation_are_torchvisions(which: int, reference, close, factor: float) -> None:
    factors = torch.tensor([[1.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
    factors[0, which] = factor
    for image in random_images(3):
        found = jittered(image.unsqueeze(0), factors)
        torch.testing.assert_close(found, reference(image.unsqueeze(0), factor), **close)


def test_contrast_and_saturation_by_the_formula() -> None:
    image = random_images(1)[0]
    grey = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    for i in range(SIZE):
        for j in range(SIZE):
            red, green, blue = image[:, i, j].tolist()
            grey[i, j] = 0.299 * red + 0.587 * green + 0.114 * blue
    for which, aim in ((1, torch.full_like(grey, float(grey.mean()))), (2, grey)):
        factors = torch.tensor([[1.0, 1.0, 1.0, 0.0]], dtype=torch.float64)
        factors[0, which] = 1.4
        torch.testing.assert_close(
            jittered(image.unsqueeze(0), factors)[0], (aim + 1.4 * (image - aim)).clamp(0, 1), **CLOSE
        )
    torch.testing.assert_close(greyed(image.unsqueeze(0))[0], grey.expand(3, -1, -1), **CLOSE)
    torch.testing.assert_close(greyed(image.unsqueeze(0)), tv.rgb_to_grayscale(image.unsqueeze(0), 3), **GREY_CLOSE)


@given(red=st.floats(0, 1), green=st.floats(0, 1), blue=st.floats(0, 1), turn=st.floats(-0.5, 0.5), grey=st.booleans())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_hue_turns_as_in_the_standard_library(red: float, green: float, blue: float, turn: float, grey: bool) -> None:
    colour = (red, red, red) if grey else (red, green, blue)
    hue, saturation, value = colorsys.rgb_to_hsv(*colour)
    expected = colorsys.hsv_to_rgb((hue + turn) % 1.0, saturation, value)
    image = torch.tensor(colour, dtype=torch.float64).view(1, 3, 1, 1)
    found = turned_hue(image, torch.tensor(turn, dtype=torch.float64).view(1, 1, 1, 1))
    torch.testing.assert_close(found.flatten(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("turn", [-0.1, 0.0, 0.07])
def test_hue_of_images_is_torchvisions(turn: float) -> None:
    images = random_images(2)
    found = turned_hue(images, torch.full((2, 1, 1, 1), turn, dtype=torch.float64))
    torch.testing.assert_close(found, tv.adjust_hue(images, turn), rtol=0, atol=1e-6)


def test_the_four_changes_come_one_after_the_other_before_all_colour_goes() -> None:
    image = random_images(1)
    b, c, s, h = 1.3, 0.7, 1.4, -0.05
    drawn = nothing_drawn(1)
    drawn[0, 5:9], drawn[0, 9] = torch.tensor([b, c, s, h], dtype=torch.float64), 1
    expected = tv.adjust_hue(tv.adjust_saturation(tv.adjust_contrast(tv.adjust_brightness(image, b), c), s), h)
    torch.testing.assert_close(apply_views(FULL, image, drawn), expected, rtol=0, atol=1e-3)
    drawn[0, 10] = 1
    torch.testing.assert_close(apply_views(FULL, image, drawn), tv.rgb_to_grayscale(expected, 3), rtol=0, atol=1e-3)


@pytest.mark.parametrize("kind", [FULL, PARTIAL])
def test_where_nothing_is_drawn_the_image_stays_to_the_bit(kind: ViewKind) -> None:
    images = random_images(3)
    assert torch.equal(apply_views(kind, images, nothing_drawn(3)), images)


@given(seed=st.integers(0, 999), full=st.booleans(), extreme=st.booleans())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_views_keep_shape_and_range_and_each_image_is_seen_for_itself(seed: int, full: bool, extreme: bool) -> None:
    kind, images = FULL if full else PARTIAL, random_images(5, seed)
    if extreme:
        images = images.round()
    drawn = draw_views(kind, 5, SIZE, torch.Generator().manual_seed(seed))
    views = apply_views(kind, images, drawn)
    assert (views.shape, views.dtype) == (images.shape, images.dtype)
    assert float(views.min()) >= 0
    assert float(views.max()) <= 1 + 1e-12
    alone = torch.cat([apply_views(kind, images[i : i + 1], drawn[i : i + 1]) for i in range(5)])
    torch.testing.assert_close(views, alone, **CLOSE)


def test_full_views_are_drawn_as_the_protocol_says() -> None:
    drawn = drawn_from(FULL, 20_000)
    require_share(drawn[:, 4], 0.5)
    require_share(drawn[:, 9], 0.8)
    require_share(drawn[:, 10], 0.2)
    require_share(drawn[:, 4] * drawn[:, 9] * drawn[:, 10], 0.5 * 0.8 * 0.2)  # drawn apart from each other
    area = drawn[:, 1] * drawn[:, 3] / 32**2
    # Sides are whole pixels: half a pixel along each may be missing.
    assert float(area.min()) >= 0.2 - 0.5 * 2 * (0.2 * 4 / 3) ** 0.5 / 32 - 0.25 / 32**2
    assert float(area.max()) <= 1
    ratio = drawn[:, 3] / drawn[:, 1]
    assert float(ratio.min()) > 0.7
    assert float(ratio.max()) < 1.43
    # Draws that do not fit are drawn again, so that large areas are rarer: no test of the exact law, but of both ends.
    assert 0.1 < float((area < 0.3).double().mean()) < 0.2
    assert float((area > 0.9).double().mean()) > 0.03
    for start, length in ((0, 1), (2, 3)):
        assert float(drawn[:, start].min()) >= 0
        assert float((drawn[:, start] + drawn[:, length]).max()) <= 32
    for column, (middle, span) in zip(range(5, 9), [(1, 0.4), (1, 0.4), (1, 0.4), (0, 0.1)], strict=True):
        values = drawn[:, column]
        assert float(values.min()) >= middle - span
        assert float(values.max()) <= middle + span
        require_share(values > middle + span / 2, 0.25)


def test_partial_views_are_drawn_as_the_protocol_says() -> None:
    drawn = drawn_from(PARTIAL, 20_000)
    require_share(drawn[:, 4], 0.5)
    assert not drawn[:, 9:].any()
    for column in (0, 2):
        for shift in range(-4, 5):
            require_share(drawn[:, column] == shift, 1 / 9)
    require_share((drawn[:, 0] == 0) & (drawn[:, 2] == 0), 1 / 81)
    assert drawn[:, [1, 3]].unique().tolist() == [32]


@pytest.mark.parametrize("kind", [FULL, PARTIAL])
def test_the_same_numbers_come_from_the_same_generator(kind: ViewKind) -> None:
    assert torch.equal(drawn_from(kind, 50, seed=3), drawn_from(kind, 50, seed=3))
    assert not torch.equal(drawn_from(kind, 50, seed=3), drawn_from(kind, 50, seed=4))
    assert drawn_from(kind, 0).shape == (0, NUMBERS)
    assert apply_views(kind, random_images(0), drawn_from(kind, 0)).shape == (0, 3, SIZE, SIZE)


def test_versions_turn_halves_and_then_the_whole() -> None:
    image = torch.tensor([[1.0, 2], [3, 4]]).expand(1, 3, 2, 2)
    made = versions(image)[:, 0].tolist()
    inner = [[[1, 2], [3, 4]], [[2, 1], [3, 4]], [[1, 2], [4, 3]], [[2, 1], [4, 3]]]
    assert made[::4] == inner
    assert made[:4] == [[[1, 2], [3, 4]], [[2, 4], [1, 3]], [[4, 3], [2, 1]], [[3, 1], [4, 2]]]


def test_a_half_is_turned_and_not_only_mirrored() -> None:
    image = torch.arange(16.0).view(1, 1, 4, 4).expand(1, 3, 4, 4)
    turned = versions(image)[4, 0]
    assert turned.tolist() == [[7, 6, 5, 4], [3, 2, 1, 0], [8, 9, 10, 11], [12, 13, 14, 15]]


@given(count=st.integers(1, MOST_VERSIONS), images=st.integers(1, 3), size=st.integers(2, 5))
def test_no_pixel_is_lost_and_fewer_versions_are_the_first_ones(count: int, images: int, size: int) -> None:
    given_images = torch.rand(images, 3, size, size, generator=torch.Generator().manual_seed(size))
    made = versions(given_images, count)
    assert torch.equal(made, versions(given_images)[: count * images])
    assert torch.equal(made[:images], given_images)
    pixels = given_images.flatten(2).sort(2).values.repeat(count, 1, 1)
    assert torch.equal(made.flatten(2).sort(2).values, pixels)


def test_all_versions_of_an_image_differ() -> None:
    made = versions(torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert len({tuple(one.flatten().tolist()) for one in made}) == MOST_VERSIONS


@given(rows=st.lists(st.integers(-20, 2000), min_size=1, max_size=6), count=st.integers(1, MOST_VERSIONS))
def test_a_pseudo_class_is_a_class_and_a_version(rows: list[int], count: int) -> None:
    numbers = pseudo_classes(torch.tensor(rows), count).tolist()
    pairs = [(row, version) for version in range(count) for row in rows]
    assert len(numbers) == len(pairs)
    for i, one in enumerate(pairs):
        assert all((numbers[i] == numbers[j]) == (one == other) for j, other in enumerate(pairs))


def test_images_and_their_loss_are_mixed_by_weight() -> None:
    random = torch.Generator().manual_seed(0)
    images, others = torch.rand(2, 3, 3, 4, 4, generator=random, dtype=torch.float64)
    logits = torch.randn(3, 5, generator=random, dtype=torch.float64)
    rows, other_rows, weights = [0, 3, 4], [2, 3, 1], [0.0, 0.3, 0.75]
    mixed = mixed_images(images, others, torch.tensor(weights, dtype=torch.float64))
    whole = 0.0
    for i, weight in enumerate(weights):
        torch.testing.assert_close(mixed[i], (1 - weight) * images[i] + weight * others[i])
        total = sum(math.exp(float(logit)) for logit in logits[i])
        for share, row in ((1 - weight, rows[i]), (weight, other_rows[i])):
            whole -= share * math.log(math.exp(float(logits[i, row])) / total)
    found = mixed_cross_entropy(logits, torch.tensor(rows), torch.tensor(other_rows), torch.tensor(weights))
    assert float(found) == pytest.approx(whole / 3)


def test_a_mixture_of_two_classes_is_of_neither() -> None:
    rows, others = torch.tensor([4, 4, 4, 2]), torch.tensor([4, 1, 1, 0])
    assert mixed_rows(rows, others, torch.tensor([0.5, 0.5, 0.0, 0.1])).tolist() == [4, -2, 4, -4]


def test_mixtures_are_put_end_to_end() -> None:
    one = Mixture(*(torch.tensor([i]) for i in range(5)))
    other = Mixture(*(torch.tensor([10 + i, 20 + i]) for i in range(5)))
    parts = Mixture.together(one, other).parts()
    assert [part.tolist() for part in parts.values()] == [[i, 10 + i, 20 + i] for i in range(5)]


@pytest.mark.parametrize("alpha", [0.4, 1.0, 3.0])
def test_weights_have_the_moments_of_their_distribution(alpha: float) -> None:
    drawn = draw_beta(alpha, 20000, torch.Generator().manual_seed(1))
    assert len(drawn) == 20000
    assert 0 <= float(drawn.min()) <= float(drawn.max()) <= 1
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(drawn.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)


def test_each_half_is_mirrored_in_its_own_place() -> None:
    line = torch.arange(6.0).expand(1, 3, 6, 6)
    assert halves_mirrored(line)[0, 0, 0].tolist() == [2, 1, 0, 5, 4, 3]
    assert torch.equal(halves_mirrored(halves_mirrored(line)), line)
    doubled = with_halves_mirrored(line)
    assert torch.equal(doubled, torch.cat([line, halves_mirrored(line)]))
