"""A pass through a frozen network gives what the network gives, to keep. Graphs are looked at in `tests/gpu`."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor

import prol
from prol.backbones import ViT
from prol.backbones.acceleration import FrozenPass


def inputs(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(seed))


def test_it_is_the_networks_pass_without_gradients(tiny: ViT) -> None:
    network = tiny.fork("norms")
    images = inputs(3)
    seen = FrozenPass(network.features, captured=True)(images)
    assert network.features(images).requires_grad
    assert not seen.requires_grad
    assert torch.equal(seen, network.features(images))


def test_what_one_pass_gave_stays_when_others_follow() -> None:
    place = torch.zeros(2, 3)
    look = FrozenPass(lambda images: place.copy_(images.mean((2, 3))), captured=False)  # as a graph does
    first = look(inputs(2))
    kept = first.clone()
    look(inputs(2, seed=1))
    assert torch.equal(first, kept)


def test_a_network_that_changes_in_place_is_seen_as_it_is(tiny: ViT) -> None:
    network, images = tiny.fork("norms"), inputs(2)
    look = FrozenPass(network.features, captured=True)
    before = look(images)
    with torch.no_grad():
        for parameter in network.trained().values():
            parameter.mul_(0.5)
    assert not torch.allclose(look(images), before)
    assert torch.equal(look(images), network.features(images))


@pytest.mark.parametrize(
    "method", ["ncm", "slda", "ranpac", "randumb", "foal", "layup", "klda", "lr_rgda", "knn", "logreg", "prol_plus"]
)
def test_a_learner_goes_with_its_last_use(tiny: ViT, method: str) -> None:
    """Not when somebody collects cycles: a service drops one copy after another, each as large as its sums."""
    options = {"features": 8} if method in ("ranpac", "randumb", "foal", "klda") else {}
    learner = prol.create(method, tiny, **options)
    images = torch.randint(256, (4, 16, 16, 3), dtype=torch.uint8).numpy()
    learner.learn(images, [0, 1, 0, 1])
    learner.predict(images)
    gone = weakref.ref(learner)
    gc.disable()
    try:
        del learner
        assert gone() is None
    finally:
        gc.enable()
