"""A frozen network's pass gives what its steps give one by one. Graphs are looked at in `tests/gpu`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from prol.backbones import evaluation_input, open_backbone
from prol.parts.frozen_pass import FrozenPass
from prol.parts.inputs import training_input

BACKBONE = open_backbone("vit_tiny_patch16_224@random", device="cpu")
HOW = BACKBONE.preprocessing


def images(count: int, seed: int, side: int = 40) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (count, 3, side, side), dtype=np.uint8))


def test_what_is_evaluated_is_not_augmented() -> None:
    pixels = images(3, seed=0)
    expected = BACKBONE.features(evaluation_input(pixels, HOW, BACKBONE.device, BACKBONE.dtype))
    assert torch.equal(FrozenPass(BACKBONE, BACKBONE.features).evaluation(pixels, HOW), expected)


def test_what_is_learnt_is_augmented_as_the_numbers_say() -> None:
    pixels, look = images(3, seed=1), FrozenPass(BACKBONE, BACKBONE.features)
    inputs = training_input(pixels, HOW, BACKBONE, "crop_flip", torch.Generator().manual_seed(5))
    found = look.training(pixels, HOW, "crop_flip", torch.Generator().manual_seed(5))
    assert torch.equal(found, BACKBONE.features(inputs))
    assert not torch.equal(found, look.training(pixels, HOW, "crop_flip", torch.Generator().manual_seed(6)))


def test_no_pass_leaves_a_gradient_behind() -> None:
    network = BACKBONE.fork("norms")
    assert network.trained()
    assert not FrozenPass(BACKBONE, network.features).evaluation(images(2, seed=2), HOW).requires_grad


def test_a_network_that_changes_in_place_is_seen_as_it_is() -> None:
    network, pixels = BACKBONE.fork("norms"), images(2, seed=3)
    look = FrozenPass(BACKBONE, network.features)
    before = look.evaluation(pixels, HOW)
    with torch.no_grad():
        for parameter in network.trained().values():
            parameter.mul_(0.5)
    after = look.evaluation(pixels, HOW)
    assert not torch.allclose(before, after)
    assert torch.equal(after, network.features(evaluation_input(pixels, HOW, BACKBONE.device, BACKBONE.dtype)))


def test_another_input_is_made_where_it_is_asked_for() -> None:
    pixels, look = images(2, seed=4), FrozenPass(BACKBONE, BACKBONE.features)
    whole, part = (look.evaluation(pixels, replace(HOW, crop_pct=share)) for share in (1.0, 0.5))
    assert not torch.allclose(whole, part)
    assert torch.equal(look.evaluation(pixels, replace(HOW, crop_pct=1.0)), whole)


@given(sizes=st.lists(st.integers(1, 4), min_size=2, max_size=4))
def test_what_one_pass_gave_stays_when_others_follow(sizes: list[int]) -> None:
    look = FrozenPass(BACKBONE, lambda inputs: inputs.mean((2, 3)))
    given_out = [look.evaluation(images(size, seed), HOW) for seed, size in enumerate(sizes)]
    kept = [seen.clone() for seen in given_out]
    look.evaluation(images(sizes[0], seed=99), HOW)
    assert all(torch.equal(now, then) for now, then in zip(given_out, kept, strict=True))
