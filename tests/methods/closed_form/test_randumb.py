"""RanDumb: its kernel's width, its memories and its counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import prol
from methods.small_streams import pictures, tensors
from prol.backbones import ViT, evaluation_input
from prol.learner import Amount
from prol.methods.closed_form.random_features import gamma_by_variance
from prol.methods.closed_form.randumb import RanDumb
from prol.runs.inspection import count_parameters

TASKS = ([0, 1, 2], [3, 4, 5])
TEST = pictures(list(range(6)), seed=7)


def make(vit: ViT, seed: int = 0, **options: Any) -> RanDumb:
    learner = prol.create("randumb", vit, seed=seed, **({"features": 60} | options))
    assert isinstance(learner, RanDumb)
    return learner


def teach(learner: RanDumb, steps: int = 4) -> RanDumb:
    for classes in TASKS:
        learner.boundary(classes)
        for step in range(steps):
            learner.learn(pictures(classes, seed=step), classes)
    return learner


def predictions(learner: RanDumb) -> list[Any]:
    return [learner.classes[row] for row in learner.predict(TEST).argmax(1).tolist()]


@pytest.mark.parametrize(
    "options", [{}, {"priors": False}, {"memory": 2}, {"memory": "all"}, {"accumulate": "float32"}], ids=str
)
def test_it_knows_the_classes_of_both_tasks(tiny: ViT, options: dict[str, Any]) -> None:
    assert predictions(teach(make(tiny, **options))) == [0, 1, 2, 3, 4, 5]


def test_gamma_comes_from_the_first_chunk_and_stays(tiny: ViT) -> None:
    learner, first = make(tiny), pictures([0, 1, 2])
    inputs = evaluation_input(tiny.read(first), tiny.preprocessing, torch.device("cpu"), torch.float64)
    learner.learn(first, [0, 1, 2])
    assert learner.gamma == gamma_by_variance(tiny.features(inputs))
    teach(learner)
    assert learner.gamma == gamma_by_variance(tiny.features(inputs))


def test_a_given_gamma_is_taken(tiny: ViT) -> None:
    assert teach(make(tiny, gamma=0.03)).gamma == 0.03


def test_a_state_brings_its_gamma_and_its_random_layer(tiny: ViT) -> None:
    learner, twin = teach(make(tiny, seed=3)), make(tiny, seed=8)
    assert all(tuple(tensor.shape) != (tiny.width, 60) for tensor in tensors(learner).values())
    twin.load_state(*learner.state())
    assert torch.equal(twin.predict(TEST), learner.predict(TEST))


def test_before_anything_is_seen_no_announced_class_can_win(tiny: ViT) -> None:
    learner = make(tiny)
    learner.boundary(["ghost", "spirit"])
    assert (learner.predict(TEST) == -torch.inf).all()


def test_without_memory_only_the_last_task_is_known(tiny: ViT) -> None:
    learner = teach(make(tiny, memory="none"))
    assert (learner.predict(TEST)[:, :3] == -torch.inf).all()
    assert predictions(learner)[3:] == [3, 4, 5]


def test_samples_stored_are_counted(tiny: ViT) -> None:
    assert teach(make(tiny)).footprint().samples_stored == Amount(0, 0)
    assert teach(make(tiny, memory=2)).footprint().samples_stored == Amount(12, 12 * tiny.width * 8)
    assert make(tiny, memory="all").exemptions().keys() == {"nothing_outlives_its_step", "memory_is_bounded"}


def test_the_papers_count_is_the_random_matrix_and_a_head_that_does_not_exist() -> None:
    found = count_parameters("randumb", {}, "vit_base_patch16_224", 200, 10)
    assert list(found["paper_convention"].values()) == [7_833_800]
    assert found["during_last_task"]["parameters_stored"]["count"] == 769 * 10_000 + 200 * 10_001
    assert found["during_last_task"]["samples_stored"]["count"] == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 0}, "features must be at least 1, got 0"),
        ({"gamma": 0}, "gamma must be a finite number above 0, or auto, got 0"),
        ({"memory": -1}, "memory must be at least 1, or statistics, none, all, got -1"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RanDumb.read_options(options)
