"""Images much longer than wide: the same input to the network, in memory that their pixels bound."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from backbones.test_preprocess import PLAIN, augment, evaluate, pixels
from largest import Largest, homes
from prol.backbones import Preprocessing
from prol.backbones.resampling import WeightCache

LONG = [(2000, 3), (2, 900), (1, 2000)]


@pytest.mark.parametrize("canvases", [False, True])
@pytest.mark.parametrize("how", [PLAIN, replace(PLAIN, interpolation="bilinear", crop_pct=0.875)], ids=str)
def test_an_elongated_image_is_resampled_as_a_whole_one_would_be(
    how: Preprocessing, canvases: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [pixels(height, width, seed) for seed, (height, width) in enumerate(LONG)]
    found = []
    for factor in (10**9, 8):  # never cropped first; always where it is elongated
        monkeypatch.setattr("prol.backbones.resampling.ELONGATED", factor)
        monkeypatch.setattr("prol.backbones.preprocess._weights", WeightCache(0))
        monkeypatch.setattr("prol.backbones.preprocess._takes_canvases", lambda *_, on=canvases: on)
        found.append((evaluate(images, how), augment(images, how), evaluate(torch.stack(images[:1] * 2), how)))
    for whole, cropped in zip(*found, strict=True):
        torch.testing.assert_close(cropped, whole, rtol=0, atol=1e-9)


@pytest.mark.parametrize("shape", [(1, 2_000_000), (2_000_000, 1), (300, 60_000)])
def test_memory_for_an_elongated_image_is_bounded_by_its_pixels(shape: tuple[int, int]) -> None:
    image = torch.zeros(3, *shape, dtype=torch.uint8)
    for make in (evaluate, augment):
        with Largest(homes([image])) as largest:
            make([image], replace(PLAIN, size=32))
        assert 0 < largest.numbers <= max(3 * 32 * 32, 3 * (min(shape) * 4 // 3 + 40) ** 2)


def test_the_cache_of_weights_is_bounded_by_bytes() -> None:
    cache, made = WeightCache(limit=1000), []

    def weights(name: int, numbers: int) -> tuple[Tensor, ...]:
        return cache.get(name, lambda: made.append(name) or (torch.full((numbers,), name, dtype=torch.float32),))

    for name in range(4):  # 400 bytes each: two fit
        weights(name, 100)
        weights(2, 100)
    assert cache.bytes == 800
    assert (made, weights(3, 100)[0][0]) == ([0, 2, 1, 3], 3)
    assert len(weights(9, 251)[0]) == 251  # more than fits is returned, and displaces nothing
    assert (cache.bytes, made) == (800, [0, 2, 1, 3, 9])
