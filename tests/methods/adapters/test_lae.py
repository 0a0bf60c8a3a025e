"""LAE: an online module, its moving average, and the surer of both predictions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import prol
from methods.small_streams import pictures, tensors
from prol.backbones import ViT, evaluation_input
from prol.learner import Amount
from prol.methods.adapters.lae import LAE

PLAIN = {"augment": "none", "blocks": 3, "lr": 0.01, "freeze_steps": 0}
TEST = pictures([0, 1, 2, 3], seed=50)
MODULES = ["adapter", "lora", "prefix"]


def make(vit: ViT, seed: int = 0, **options: Any) -> LAE:
    learner = prol.create("lae", vit, seed=seed, **{**PLAIN, **options})
    assert isinstance(learner, LAE)
    return learner


def teach(learner: LAE, tasks: int, steps: int = 3) -> LAE:
    """Two classes a task: 0 and 1, then 2 and 3, and so on."""
    for task in range(tasks):
        kinds = [2 * task, 2 * task + 1]
        learner.boundary(kinds)
        for step in range(steps):
            learner.learn(pictures(kinds, step), kinds)
    return learner


def copied(module: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("module", MODULES)
def test_the_slow_copy_begins_with_the_second_task_and_is_a_moving_average(tiny: ViT, module: str) -> None:
    learner = teach(make(tiny, module=module, decay=0.9), 1)
    assert learner.slow == {}
    learner.boundary([2, 3])
    assert same(learner.slow, learner.online)
    expected = copied(learner.slow)
    for step in range(4):
        learner.learn(pictures([2, 3], step), [2, 3])
        expected = {name: 0.9 * tensor + 0.1 * learner.online[name] for name, tensor in expected.items()}
        for name, tensor in expected.items():
            torch.testing.assert_close(learner.slow[name], tensor, rtol=0, atol=1e-14)
    learner.boundary([4])
    for name, tensor in expected.items():  # later tasks leave it where it is
        torch.testing.assert_close(learner.slow[name], tensor, rtol=0, atol=1e-14)


@pytest.mark.parametrize("module", MODULES)
def test_scores_are_the_higher_of_both_probabilities(tiny: ViT, module: str) -> None:
    learner = teach(make(tiny, module=module, decay=0.5), 2)
    inputs = evaluation_input(tiny.read(TEST), tiny.preprocessing, tiny.device, tiny.dtype)
    tokens, predictions = tiny.embed(inputs), []
    for tensors_of in (learner.online, learner.slow):
        found = tiny.encode(tokens, additions=learner.module.additions(tensors_of)).feature
        predictions.append((found @ learner.head.weight.rows.T + learner.head.bias.rows).softmax(1))
    assert not torch.allclose(*predictions)
    expected = torch.stack(predictions).amax(0).float()
    torch.testing.assert_close(learner.predict(TEST), expected, rtol=0, atol=1e-6)


def test_the_online_module_waits_at_the_start_of_later_tasks_while_the_head_learns(tiny: ViT) -> None:
    learner = make(tiny, freeze_steps=2)
    fresh = copied(learner.online)
    teach(learner, 1, steps=1)
    learner.learn(pictures([0, 1], 9), [0, 1])
    assert not same(learner.online, fresh)
    before = copied(learner.online)
    learner.boundary([2, 3])
    for step in range(2):
        head = tensors(learner)["head/weight"]
        assert learner.footprint().trained_now.count == 2 * 65
        learner.learn(pictures([2, 3], step), [2, 3])
        assert same(learner.online, before)
        assert not torch.equal(tensors(learner)["head/weight"], head)
    learner.learn(pictures([2, 3], 2), [2, 3])
    assert not same(learner.online, before)


def test_old_head_rows_stay_bit_for_bit_and_predictions_move_nothing(tiny: ViT) -> None:
    learner = teach(make(tiny), 1)
    before = tensors(learner)["head/weight"]
    learner.boundary([2, 3])
    learner.learn(pictures([2, 3]), [2, 3])
    assert torch.equal(tensors(learner)["head/weight"][:2], before)
    slow, online = copied(learner.slow), copied(learner.online)
    first = learner.predict(TEST)
    assert torch.equal(learner.predict(TEST), first)
    assert same(learner.slow, slow)
    assert same(learner.online, online)


@pytest.mark.parametrize("module", MODULES)
def test_a_short_stream_lowers_the_loss_and_is_learnt(tiny: ViT, module: str) -> None:
    learner = make(tiny, module=module)
    learner.boundary([0, 1, 2])
    history = []
    for step in range(20):
        learner.learn(pictures([0, 1, 2], step), [0, 1, 2])
        history.append(learner.report()["ce"])
    assert history[-1] < 0.5 * history[0]
    assert learner.predict(pictures([0, 1, 2], seed=99)).argmax(1).tolist() == [0, 1, 2]


def test_without_boundaries_the_clock_begins_tasks_and_old_classes_may_come_again(tiny: ViT) -> None:
    learner = make(tiny, task_min_steps=2)
    for step, kinds in enumerate([[0, 1], [0, 1], [2, 3], [3, 0], [1, 4]]):
        learner.learn(pictures(kinds, step), kinds)
    assert (learner.clock.number, learner.clock.first_row) == (2, 4)
    assert learner.predict(TEST).shape == (4, 5)


def test_announced_classes_do_not_win_before_they_are_seen(tiny: ViT) -> None:
    learner = teach(make(tiny), 1)
    learner.boundary([2, 3])
    scores = learner.predict(TEST)
    assert torch.equal(scores[:, 2:], torch.zeros(4, 2))
    torch.testing.assert_close(scores[:, :2].sum(1), torch.ones(4))


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 3 * (2 * 64 * 5 + 5 + 64)),
        ({"module": "lora"}, 3 * 2 * 2 * 64 * 5),
        ({"module": "lora", "targets": "qkv", "size": 2}, 3 * 3 * 2 * 64 * 2),
        ({"module": "prefix"}, 3 * 2 * 64 * 10),
    ],
    ids=["adapter", "lora", "lora qkv", "prefix"],
)
def test_its_footprint_is_two_modules_and_the_head(tiny: ViT, options: dict[str, Any], size: int) -> None:
    learner = teach(make(tiny, **options), 1)
    assert learner.footprint().parameters_stored.count == size + 2 * 65
    teach(learner, 2)
    found = learner.footprint()
    assert found.parameters_stored.count == 2 * size + 4 * 65
    assert found.trained_now.count == size + 2 * 65
    assert found.statistics_stored == Amount(4, 4)  # which classes have been seen
    assert found.samples_stored == Amount(0, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"module": "bias"}, "one of adapter, lora, prefix"),
        ({"blocks": 9}, "the backbone has 4: pass blocks=4"),
        ({"decay": 1.5}, "decay must be from 0 to 1, got 1.5"),
        ({"size": 0}, "size must be at least 1"),
        ({"freeze_steps": -1}, "freeze_steps"),
    ],
)
def test_options_out_of_range_are_refused(tiny: ViT, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(tiny, **options)
