from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from prol.methods.replay.rotations import MOST, pseudo_classes, versions


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


@given(count=st.integers(1, MOST), images=st.integers(1, 3), size=st.integers(2, 5))
def test_no_pixel_is_lost_and_fewer_versions_are_the_first_ones(count: int, images: int, size: int) -> None:
    given_images = torch.rand(images, 3, size, size, generator=torch.Generator().manual_seed(size))
    made = versions(given_images, count)
    assert torch.equal(made, versions(given_images)[: count * images])
    assert torch.equal(made[:images], given_images)
    pixels = given_images.flatten(2).sort(2).values.repeat(count, 1, 1)
    assert torch.equal(made.flatten(2).sort(2).values, pixels)


def test_all_versions_of_an_image_differ() -> None:
    made = versions(torch.rand(1, 3, 4, 4, generator=torch.Generator().manual_seed(0)))
    assert len({tuple(one.flatten().tolist()) for one in made}) == MOST


@given(rows=st.lists(st.integers(-20, 2000), min_size=1, max_size=6), count=st.integers(1, MOST))
def test_a_pseudo_class_is_a_class_and_a_version(rows: list[int], count: int) -> None:
    numbers = pseudo_classes(torch.tensor(rows), count).tolist()
    pairs = [(row, version) for version in range(count) for row in rows]
    assert len(numbers) == len(pairs)
    for i, one in enumerate(pairs):
        assert all((numbers[i] == numbers[j]) == (one == other) for j, other in enumerate(pairs))
