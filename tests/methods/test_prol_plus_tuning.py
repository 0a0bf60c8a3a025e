"""How PROL+ tunes LayerNorms in its first task, and that it stops."""

from __future__ import annotations

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from small_prol_plus import CLASSES, TASKS, answers, learn, make, norms, teach
from small_streams import pictures, tensors
from torch import Tensor

from prol.backbones import ViT, evaluation_input
from prol.learner import Amount


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def shares(step: int, steps: int) -> float:
    """Of the rate with which tuning began, at a step."""
    return 0.5 + 0.5 * math.cos(math.pi * step / steps)


def test_steps_are_those_of_torchs_adam_at_a_rate_that_falls_by_a_cosine(tiny: ViT) -> None:
    learner, model = make(tiny, adapt_steps=5, adapt_lr=0.01), copy.deepcopy(tiny.model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name)
    weight, bias = torch.zeros(3, tiny.width).double().requires_grad_(), torch.zeros(3).double().requires_grad_()
    trained = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.Adam([*trained, weight, bias], lr=1.0)
    for step in range(5):
        images = pictures(CLASSES, seed=step)
        inputs = evaluation_input(tiny.read(images), tiny.preprocessing, tiny.device, tiny.dtype)
        features = model.norm(model.blocks(tiny.embed(inputs)))[:, 0]
        loss = F.cross_entropy(F.linear(features, weight, bias), torch.tensor([0, 1, 2, 0, 1, 2]))
        adam.zero_grad()
        loss.backward()
        for group in adam.param_groups:
            group["lr"] = 0.01 * shares(step, 5)
        adam.step()
        learner.learn(images, CLASSES)
        report = learner.report()
        assert report["adapt"] == pytest.approx(loss.item(), rel=1e-9)
        assert report["rate"] == pytest.approx(0.01 * shares(step, 5))
    expected = {f"tuning/norm/{name}": p.data for name, p in model.named_parameters() if p.requires_grad}
    assert norms(learner).keys() == expected.keys()
    for name, tensor in norms(learner).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("adapt_steps", [2, 4])
def test_tuning_stops_after_its_steps_and_the_layer_norms_stay(tiny: ViT, adapt_steps: int) -> None:
    learner = make(tiny, adapt_steps=adapt_steps)
    for step in range(adapt_steps):
        assert not learner.tuning.over
        before = norms(learner)
        learn(learner, 1, first=step)
        moved = [not torch.equal(before[name], tensor) for name, tensor in norms(learner).items()]
        assert all(moved) if step else not any(moved)  # a head of zeros tells the LayerNorms nothing
    frozen = norms(learner)
    assert learner.footprint().trained_now == Amount(0, 0)
    assert learner.tuning.over
    learn(learner, 3, first=adapt_steps)
    assert "adapt" not in learner.report()
    learner.boundary(TASKS[1])
    learn(learner, 3, TASKS[1] * 2)
    assert same(frozen, norms(learner))
    assert answers(learner) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("told", [True, False])
def test_tuning_stops_at_the_second_task(tiny: ViT, told: bool) -> None:
    learner = make(tiny, task_min_steps=3)
    if told:
        learner.boundary(TASKS[0])
    learn(learner, 3)
    tuned = norms(learner)
    assert not any(torch.equal(p, tuned[f"tuning/norm/{name}"]) for name, p in tiny.fork("norms").trained().items())
    assert learner.footprint().trained_now.count == sum(t.numel() for t in tuned.values()) + 3 * (tiny.width + 1)
    if told:
        learner.boundary(TASKS[1])
    learn(learner, 3, TASKS[1] * 2)
    assert same(tuned, norms(learner))
    assert learner.footprint().trained_now == Amount(0, 0)
    assert all(t.numel() == 0 for name, t in tensors(learner).items() if name.startswith("tuning/head/"))
    assert not any(name.startswith("tuning/adam/") and t.numel() > 1 for name, t in tensors(learner).items())
    learner.boundary()
    learn(learner, 2)
    assert same(tuned, norms(learner))
    assert set(learner.report()) == {"shrinkage"}


def test_an_unseen_class_in_a_young_task_joins_the_tuning(tiny: ViT) -> None:
    learner = learn(make(tiny), 2)
    before = norms(learner)
    learn(learner, 1, [0, 3])
    assert not same(before, norms(learner))
    assert learner.footprint().trained_now.count == sum(t.numel() for t in before.values()) + 4 * (tiny.width + 1)


def test_without_steps_nothing_is_tuned(tiny: ViT) -> None:
    learner = make(tiny, adapt_steps=0)
    assert learner.tuning.over
    teach(learner)
    assert all(
        torch.equal(p, norms(learner)[f"tuning/norm/{name}"]) for name, p in tiny.fork("norms").trained().items()
    )
    assert set(learner.report()) == {"shrinkage"}


def test_the_backbone_itself_is_left_alone(tiny: ViT) -> None:
    before = {name: parameter.clone() for name, parameter in tiny.named_parameters()}
    learner = teach(make(tiny, adapt_lr=0.05))
    assert all(torch.equal(parameter, before[name]) for name, parameter in tiny.named_parameters())
    network = learner.tuning.network
    shared = [name for name, parameter in tiny.named_parameters() if "norm" not in name]
    own = dict(network.named_parameters())
    assert shared
    assert all(own[name].data_ptr() == dict(tiny.named_parameters())[name].data_ptr() for name in shared)


def test_what_was_taken_in_while_tuning_counts_in_full(tiny: ViT) -> None:
    learner = learn(make(tiny, adapt_steps=3), 5)
    assert learner.moments.totals().counts.tolist() == [10, 10, 10]
    assert learner.seen == 30
