"""MOSE: its losses against the formulas, what a step draws and moves, and how experts predict."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import prol
from methods.small_streams import pictures
from prol.backbones import ResNet, evaluation_input
from prol.engine.adam import part_gradients
from prol.methods.replay.learner import current_cross_entropy
from prol.methods.replay.mose import (
    MOSE,
    draw_balanced,
    reverse_distillation,
    supervised_contrast,
)

TASKS = ([0, 1, 2], [3, 4])


def make(backbone: ResNet, seed: int = 0, **options: Any) -> MOSE:
    made = prol.create("mose", backbone, seed=seed, **({"memory": 20, "replay": 8, "current": 3} | options))
    assert isinstance(made, MOSE)
    return made


def teach(learner: MOSE, steps: int = 3, first: int = 0) -> MOSE:
    for kinds in TASKS:
        learner.boundary()
        for step in range(first, first + steps):
            learner.learn(pictures(kinds, seed=step), kinds)
    return learner


def random_tensor(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def log_softmax(values: list[float], place: int) -> float:
    most = max(values)
    return values[place] - most - math.log(sum(math.exp(value - most) for value in values))


def slow_contrast(z: Tensor, rows: list[int], temperature: float) -> float:
    total = 0.0
    for i in range(len(rows)):
        others = [k for k in range(len(rows)) if k != i]
        alike = [float(z[i] @ z[k]) / temperature for k in others]
        mates = [place for place, k in enumerate(others) if rows[k] == rows[i]]
        if mates:
            total -= sum(log_softmax(alike, place) for place in mates) / len(mates)
    return total / len(rows)


def slow_current(logits: Tensor, rows: list[int], first_row: int) -> float:
    terms = [
        -log_softmax(x[first_row:].tolist(), row - first_row)
        for x, row in zip(logits, rows, strict=True)
        if row >= first_row
    ]
    return sum(terms) / max(1, len(terms))


def slow_distillation(features: list[Tensor]) -> float:
    total = 0.0
    for teacher in features[:-1]:
        for mine, its in zip(features[-1], teacher, strict=True):
            total += float((mine / mine.norm() - its / its.norm()).square().sum()) / len(teacher)
    return total


@pytest.mark.parametrize("rows", [[0, 1, 0, 2, 1, 0], [3, 3], [0, 1, 2]])
def test_contrast_is_that_of_the_formula(rows: list[int]) -> None:
    z = F.normalize(random_tensor(len(rows), 5), dim=1).requires_grad_()
    loss = supervised_contrast(z, torch.tensor(rows), 0.07)
    assert float(loss.detach()) == pytest.approx(slow_contrast(z.detach(), rows, 0.07), abs=1e-10)
    loss.backward()
    assert z.grad is not None
    assert bool(z.grad.isfinite().all())


@pytest.mark.parametrize(("rows", "first_row"), [([0, 3, 4, 2, 3], 3), ([0, 1, 2], 3), ([2, 0, 1], 0)])
def test_the_current_task_competes_within_itself(rows: list[int], first_row: int) -> None:
    logits = random_tensor(len(rows), 5).requires_grad_()
    loss = current_cross_entropy(logits, torch.tensor(rows), first_row)
    assert float(loss.detach()) == pytest.approx(slow_current(logits.detach(), rows, first_row), abs=1e-10)
    loss.backward()
    assert logits.grad is not None
    assert not bool(logits.grad[:, :first_row].any())
    assert not bool(logits.grad[torch.tensor(rows) < first_row].any())


def test_a_task_without_classes_costs_nothing() -> None:
    assert float(current_cross_entropy(random_tensor(2, 3), torch.tensor([0, 2]), 3)) == 0


def test_the_last_expert_is_taught_and_the_others_are_not() -> None:
    features = [random_tensor(4, 3, seed=seed).requires_grad_() for seed in range(4)]
    loss = reverse_distillation(features)
    assert float(loss.detach()) == pytest.approx(slow_distillation([f.detach() for f in features]), abs=1e-10)
    loss.backward()
    assert [one.grad is not None and bool(one.grad.any()) for one in features] == [False, False, False, True]


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 6), st.integers(1, 20), st.integers(0, 2**31)
)
def test_draws_are_of_different_samples_in_the_proportion_of_classes(
    rows: list[int], first_row: int, count: int, seed: int
) -> None:
    known = torch.tensor(rows)
    picked = draw_balanced(known, first_row, 6, count, torch.Generator().manual_seed(seed))
    assert len(set(picked.tolist())) == len(picked) == min(count, len(rows))
    new, there = int((known[picked] >= first_row).sum()), int((known >= first_row).sum())
    wanted = max(1, round(count * (6 - first_row) / 6)) if first_row < 6 else 0
    if there >= wanted and len(rows) - there >= count - wanted:
        assert new == wanted
    elif there < wanted:
        assert new == there
    else:
        assert len(picked) - new == len(rows) - there


def drawn_step(learner: MOSE, kinds: list[int]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    images = torch.from_numpy(pictures(kinds, seed=40)).permute(0, 3, 1, 2).double() / 255
    rows = torch.tensor([learner.row_of[kind] for kind in kinds])
    return images, rows, learner.draw(rows)


def test_what_is_drawn_has_the_classes_it_says(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet, replay=14))
    images, rows, drawn = drawn_step(learner, [3, 0, 4])
    pool = torch.cat([images, learner.recalled(drawn["slots"])])[drawn["picked"]]
    known = torch.cat([images, learner.recalled(torch.arange(len(learner.memory)))])
    labels = torch.cat([rows, learner.memory.places.rows[: len(learner.memory)]])
    found = [labels[(known == one).flatten(1).all(1)].tolist() for one in pool]
    assert all(row in those for row, those in zip(drawn["picked_rows"].tolist(), found, strict=True))
    assert {len(drawn["slots"]), len(drawn["picked"])} == {14}
    assert sorted(set(drawn["current_rows"].tolist())) in ([3], [4], [3, 4])
    assert torch.equal(drawn["current_rows"], learner.memory.rows_in(drawn["current_slots"]))


@pytest.mark.parametrize("views", ["plain_crop", "two_crops"])
def test_the_loss_is_the_sum_over_experts_and_both_parts(small_resnet: ResNet, views: str) -> None:
    learner = teach(make(small_resnet, views=views, distil=0.5))
    images, rows, drawn = drawn_step(learner, [3, 4, 1])
    values, payload = learner.losses(images, rows, drawn)
    assert payload == {}
    balanced = torch.cat([images, learner.recalled(drawn["slots"])])[drawn["picked"]]
    current = torch.cat([images, learner.recalled(drawn["current_slots"])])
    seen = learner._twice(torch.cat([balanced, current]), drawn["views"])
    if views == "plain_crop":
        assert torch.equal(seen[: len(seen) // 2], torch.cat([balanced, current]))
    features = [one.detach() for one in learner._experts(seen, "batch")]
    labels = torch.cat([drawn["picked_rows"], rows, drawn["current_rows"]]).tolist() * 2
    half, split = len(seen) // 2, len(balanced)
    classify = contrast = 0.0
    for expert, mine in enumerate(features):
        logits = learner.logits(mine, expert).detach()
        z = F.normalize(learner.extras[f"project{expert}"](mine), dim=1).detach()
        for weight, first_row, members in (
            (2, 0, [i for i in range(len(seen)) if i % half < split]),
            (1, 3, [i for i in range(len(seen)) if i % half >= split]),
        ):
            its = [labels[i] for i in members]
            classify += weight * slow_current(logits[members], its, first_row)
            contrast += weight * slow_contrast(z[members], its, 0.07)
    assert float(values["classify"].detach()) == pytest.approx(classify, rel=1e-9)
    assert float(values["contrast"].detach()) == pytest.approx(contrast, rel=1e-9)
    assert float(values["distil"].detach()) == pytest.approx(0.5 * slow_distillation(features), rel=1e-9)
    total = sum(float(values[name].detach()) for name in ("classify", "contrast", "distil"))
    assert float(values["total"].detach()) == pytest.approx(total, rel=1e-12)


def test_the_gradient_reaches_every_weight(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet))
    images, rows, drawn = drawn_step(learner, [3, 4, 1])
    learner.live = [head.trained() for head in learner.heads]
    values, _ = learner.losses(images, rows, drawn)
    leaves = learner.trained() | {f"{i}.{n}": p.leaf for i, live in enumerate(learner.live) for n, p in live.items()}
    found = torch.autograd.grad(values["total"], list(leaves.values()))
    assert [name for name, gradient in zip(leaves, found, strict=True) if not bool(gradient.any())] == []
    parts = {f"{i}.{n}": p for i, live in enumerate(learner.live) for n, p in live.items()}
    assert set(parts) == {f"{i}.{name}" for i in range(4) for name in ("weight", "bias")}
    images, rows, drawn = drawn_step(learner, [3])
    contrast = part_gradients(learner.losses(images, rows, drawn)[0]["contrast"], parts)
    assert not any(bool(gradient.any()) for gradient in contrast.values())


def test_a_step_moves_running_statistics_by_one_mixed_batch(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet, views="plain_crop"))
    images, rows, drawn = drawn_step(learner, [3, 4])
    before = {name: tensor.clone() for name, tensor in learner.running().items()}
    learner.losses(images, rows, drawn)
    balanced = torch.cat([images, learner.recalled(drawn["slots"])])[drawn["picked"]]
    current = torch.cat([images, learner.recalled(drawn["current_slots"])])
    seen = learner._twice(torch.cat([balanced, current]), drawn["views"])
    mean = learner.network.model.conv(seen).mean((0, 2, 3))
    assert torch.allclose(learner.running()["norm.mean"], 0.9 * before["norm.mean"] + 0.1 * mean, atol=1e-12)
    for name in ("align0.norms.2.mean", "align2.norms.0.variance"):
        assert not torch.equal(learner.running()[name], before[name])
    after = {name: tensor.clone() for name, tensor in learner.running().items()}
    learner.predict(pictures([0, 1]))
    assert all(torch.equal(tensor, after[name]) for name, tensor in learner.running().items())


def test_experts_have_features_of_one_width_from_stages_of_their_own(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    images = random_tensor(2, 3, 16, 16)
    features = learner._experts(images)
    assert [tuple(one.shape) for one in features] == [(2, small_resnet.width)] * 4
    assert torch.equal(features[3], learner.network.features(images))
    stages = learner.network.stages(images)
    assert all(learner.extras[f"align{i}"](stages[i], "eval").shape == stages[3].shape for i in range(3))
    with torch.no_grad():
        learner.network.model.stages[3][1].conv2.weight.mul_(2)
    again = learner._experts(images)
    assert [torch.equal(*pair) for pair in zip(features, again, strict=True)] == [True, True, True, False]


@pytest.mark.parametrize(("test", "asked"), [("last", [3]), ("all", [0, 1, 2, 3])])
def test_predictions_are_likeness_to_means_of_the_memory_or_those_of_heads(
    small_resnet: ResNet, test: str, asked: list[int]
) -> None:
    learner, images = teach(make(small_resnet, test=test)), pictures([0, 3], seed=60)
    inputs = evaluation_input(
        torch.from_numpy(images).permute(0, 3, 1, 2), learner.preprocessing, learner.backbone.device, torch.float64
    )
    features = [one.detach() for one in learner._experts(inputs)]
    expected = torch.zeros(2, 5, dtype=torch.float64)
    for row in range(5):
        slots = (learner.memory.places.rows == row).nonzero().flatten()
        for expert in asked:
            stored = [learner._experts(learner.recalled(slot.view(1)))[expert][0].detach() for slot in slots]
            mean = torch.stack([one / one.norm() for one in stored]).mean(0)
            for i in range(2):
                expected[i, row] += F.cosine_similarity(features[expert][i], mean, dim=0) / len(asked)
    assert torch.allclose(learner.predict(images).double(), expected, atol=1e-6)
    heads = make(small_resnet, test=test, answer="heads")
    heads.load_state(*learner.state())
    shares = torch.stack([heads.heads[expert].logits(features[expert]).softmax(1) for expert in asked]).mean(0)
    assert torch.allclose(heads.predict(images).double().softmax(1), shares, atol=1e-6)


def test_a_class_of_which_nothing_is_stored_cannot_win(small_resnet: ResNet) -> None:
    learner = make(small_resnet, memory=1, replay=1, current=0)
    for kind in (0, 1, 0, 1):
        learner.learn(pictures([kind]), [kind])
        scores = learner.predict(pictures([0]))[0]
        assert scores.isfinite().sum() == 1
        assert int(scores.argmax()) == int(learner.memory.places.rows[0])


def test_old_classes_may_come_again_and_tasks_may_be_empty(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet))
    learner.boundary()
    learner.learn(pictures([0, 3]), [0, 3])  # none that is new
    learner.boundary([7])
    learner.learn(pictures([1]), [1])
    assert learner.predict(pictures([1])).shape == (1, 6)
    assert math.isfinite(learner.report()["total"])


def test_means_are_those_of_the_weights_and_the_memory_as_they_are(small_resnet: ResNet) -> None:
    asked, silent = make(small_resnet), make(small_resnet)
    for step in range(3):
        for learner in (asked, silent):
            learner.learn(pictures([0, 1, 2], seed=step), [0, 1, 2])
        asked.predict(pictures([0]))
    assert torch.equal(asked.predict(pictures([1, 2])), silent.predict(pictures([1, 2])))


def test_it_learns_two_tasks_and_stores_the_first(small_resnet: ResNet) -> None:
    learner = make(small_resnet, memory=30, replay=12, lr=3e-3)
    for kinds in TASKS:
        learner.boundary()
        for step in range(15):
            learner.learn(pictures(kinds, seed=step), kinds)
    asked = [kind for kind in range(5) for _ in range(4)]
    found = learner.predict(pictures(asked, seed=70)).argmax(1)
    assert (found == torch.tensor(asked)).double().mean() > 0.9
