"""GDumb stores a balanced memory; its predictions are a function of that memory and the seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import prol
from methods.small_streams import pictures
from prol.backbones import ResNet
from prol.methods.replay.gdumb import GDumb, GDumbOptions, MemoryNetwork, descend, rates
from prol.testing.stream import difference

KINDS = [0, 1, 2]


def make(backbone: ResNet, seed: int = 0, **options: Any) -> GDumb:
    made = prol.create("gdumb", backbone, seed=seed, **({"memory": 6, "epochs": 2, "batch": 4} | options))
    assert isinstance(made, GDumb)
    return made


def test_learning_stores_the_images_as_they_are_and_nothing_else(small_resnet: ResNet) -> None:
    learner, images = make(small_resnet), pictures(KINDS)
    learner.learn(images, KINDS)
    learner.predict(images)
    tensors, _ = learner.state()
    assert set(tensors) == {"memory/images", "memory/rows", "learnt", "random"}
    assert np.array_equal(tensors["memory/images"][:3].permute(0, 2, 3, 1).numpy(), images)
    assert tensors["memory/rows"].tolist() == [0, 1, 2, -1, -1, -1]


def test_predictions_depend_on_memory_and_seed_alone(small_resnet: ResNet) -> None:
    asked, silent, other = make(small_resnet), make(small_resnet), make(small_resnet, seed=1)
    for step in range(3):
        for learner in (asked, silent, other):
            learner.learn(pictures(KINDS, seed=step), KINDS)
        asked.predict(pictures(KINDS))
    test = pictures(KINDS, seed=9)
    assert torch.equal(asked.predict(test), silent.predict(test))
    assert not torch.equal(asked.predict(test), other.predict(test))


def test_a_loaded_state_predicts_as_the_one_saved_whatever_the_seed(small_resnet: ResNet) -> None:
    learner, twin = make(small_resnet), make(small_resnet, seed=7)
    learner.learn(pictures(KINDS), KINDS)
    twin.load_state(*learner.state())
    assert torch.equal(learner.predict(pictures(KINDS)), twin.predict(pictures(KINDS)))


def test_a_network_is_trained_once_for_each_memory(small_resnet: ResNet) -> None:
    learner, test = make(small_resnet), pictures(KINDS)
    learner.learn(test, KINDS)
    learner.predict(test)
    first = learner.latest(learner.trained_network)
    learner.predict(test)
    assert learner.latest(learner.trained_network) is first
    learner.learn(test, KINDS)
    assert learner.latest(learner.trained_network) is not first


def test_it_learns_what_is_in_its_memory() -> None:
    learner = make(ResNet(4, size=16), memory=24, epochs=12, batch=8)
    for step in range(10):
        learner.learn(pictures(KINDS, seed=step), KINDS)
    asked = [kind for kind in KINDS for _ in range(4)]
    found = learner.predict(pictures(asked, seed=50)).argmax(1)
    assert (found == torch.tensor(asked)).double().mean() > 0.9


@pytest.mark.parametrize("options", [{"memory": 1}, {"batch": 100}, {"memory": 5, "batch": 3}])
def test_any_memory_and_batch_will_do(small_resnet: ResNet, options: dict[str, Any]) -> None:
    learner = make(small_resnet, **options)
    learner.boundary([0, 1])
    assert learner.predict(pictures([0])).shape == (1, 2)  # before any image
    for kind in (0, 2):
        learner.learn(pictures([kind]), [kind])
        assert learner.predict(pictures(KINDS)).isfinite().all()


def test_training_that_diverges_is_told_and_changes_nothing(small_resnet: ResNet) -> None:
    learner = make(small_resnet, lr=1e200, epochs=3)
    learner.learn(pictures(KINDS), KINDS)
    before = learner.state()
    with pytest.raises(ValueError, match="lr=1e\\+200"):
        learner.predict(pictures(KINDS))
    assert difference(before, learner.state()) == ""
    learner.learn(pictures(KINDS), KINDS)


def test_only_the_memory_is_stored(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    learner.learn(pictures(KINDS), KINDS)
    found = learner.footprint()
    network = sum(p.numel() for p in small_resnet.model.parameters())
    assert found.trained_now.count == network + 3 * (small_resnet.width + 1)
    assert found.parameters_stored.count == 0
    assert (found.samples_stored.count, found.samples_stored.bytes) == (3, 3 * 3 * 16 * 16)


@pytest.mark.parametrize("size", [1e-3, 100.0])
def test_a_step_is_that_of_the_formula(size: float) -> None:
    random = torch.Generator().manual_seed(3)
    w, v, g = ([torch.randn(n, generator=random, dtype=torch.float64) for n in (3, 2)] for _ in range(3))
    g = [size * one for one in g]
    length = math.sqrt(sum(float(x) ** 2 for one in g for x in one))
    short = min(1.0, 10 / length)
    speeds = [
        [0.9 * float(s) + short * float(x) + 0.1 * float(a) for s, x, a in zip(*one, strict=True)]
        for one in zip(v, g, w, strict=True)
    ]
    expected = [[float(a) - 0.5 * s for a, s in zip(*t, strict=True)] for t in zip(w, speeds, strict=True)]
    descend(w, v, g, torch.tensor(0.5, dtype=torch.float64), 0.1)
    assert torch.allclose(torch.cat(w), torch.tensor(expected[0] + expected[1], dtype=torch.float64), atol=1e-12)
    assert torch.allclose(torch.cat(v), torch.tensor(speeds[0] + speeds[1], dtype=torch.float64), atol=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 30])
def test_rates_rise_to_the_full_one_and_fall_to_nothing(steps: int) -> None:
    found = rates(steps, 0.2)
    assert len(found) == steps
    assert found.max() == 0.2
    peak = int(found.argmax())
    assert bool((found[: peak + 1].diff() > 0).all())
    assert bool((found[peak:].diff() < 0).all())
    assert steps == 1 or found[-1] < 1e-12


class Reads(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ in ("_local_scalar_dense", "nonzero")
        return func(*args, **(kwargs or {}))


def test_steps_read_nothing_from_the_device(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    learner.learn(pictures(KINDS), KINDS)
    counts = []
    for epochs in (1, 4):
        with Reads() as reads:
            MemoryNetwork(small_resnet, 3, 0).train(
                learner.memory, GDumbOptions(epochs=epochs, batch=2, lr=0.1, weight_decay=0.0)
            )
        counts.append(reads.count)
    assert counts[0] == counts[1]
