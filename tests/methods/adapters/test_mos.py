"""MOS: what each step moves, merging, alignment, and the way an answer finds its adapter."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.small_streams import pictures, same_state, tensors
from prol.backbones import ViT, evaluation_input, open_backbone
from prol.learner import Amount
from prol.methods.adapters.mos import MOS, spread_apart

PLAIN = {"augment": "none", "bottleneck": 4, "align_epochs": 2, "scale": 1.0}
TEST = pictures([0, 1, 2, 3, 4, 5], seed=50)
ALL = torch.ones(9, dtype=torch.bool)


def make(vit: ViT, seed: int = 0, **options: Any) -> MOS:
    learner = prol.create("mos", vit, seed=seed, **{**PLAIN, **options})
    assert isinstance(learner, MOS)
    return learner


def teach(learner: MOS, tasks: int, steps: int = 3) -> MOS:
    """Two classes a task: 0 and 1, then 2 and 3, and so on."""
    for task in range(tasks):
        kinds = [2 * task, 2 * task + 1]
        learner.boundary(kinds)
        for step in range(steps):
            learner.learn(pictures(kinds, step), kinds)
    return learner


def features(learner: MOS, images: object, task: int) -> Tensor:
    vit, adapter = learner.backbone, learner.adapters
    inputs = evaluation_input(vit.read(images), learner.preprocessing, vit.device, vit.dtype)
    return vit.encode(vit.embed(inputs), additions=adapter.module.additions(adapter.of(task))).feature


# One step


def test_merging_happens_once_a_step_after_the_step(tiny: ViT) -> None:
    learner, plain = teach(make(tiny), 2), make(tiny, merge=0.0)
    learner.boundary([4, 5])
    for step in range(3):
        plain.load_state(*learner.state())
        for one in (learner, plain):
            one.learn(pictures([4, 5], step), [4, 5])
        assert tensors(learner)["adapters/up"].abs().max() > 0
        for name in ("down", "down_bias", "up", "up_bias"):
            first, second, stepped = tensors(plain)[f"adapters/{name}"]
            expected = 0.9 * stepped + 0.1 * (first + second) / 2
            torch.testing.assert_close(tensors(learner)[f"adapters/{name}"][2], expected, rtol=0, atol=1e-14)


def test_nothing_is_merged_in_the_first_task_nor_at_test(tiny: ViT) -> None:
    one, other = teach(make(tiny, merge=0.0), 1), teach(make(tiny, merge=1.0), 1)
    assert all(torch.equal(tensors(one)[name], tensors(other)[name]) for name in tensors(one))
    learner = teach(make(tiny), 3)
    before = tensors(learner)
    first = learner.predict(TEST)
    for _ in range(3):
        assert torch.equal(learner.predict(TEST), first)
    assert all(torch.equal(tensors(learner)[name], before[name]) for name in before)


def test_a_task_begins_with_a_copy_of_the_last_adapter_which_then_stays_bit_for_bit(tiny: ViT) -> None:
    learner = teach(make(tiny), 2)
    before = {name: t for name, t in tensors(learner).items() if name.startswith("adapters/")}
    learner.boundary([4, 5])
    begun = tensors(learner)
    assert all(torch.equal(begun[name][2], before[name][1]) for name in before)
    for step in range(3):
        learner.learn(pictures([4, 5, 0], step), [4, 5, 0])
    for name, kept in before.items():
        assert torch.equal(tensors(learner)[name][:2], kept)
        assert not torch.equal(tensors(learner)[name][2], kept[1])


def test_head_rows_of_classes_not_in_play_stay_bit_for_bit(tiny: ViT) -> None:
    learner = teach(make(tiny, alignment=False), 2)
    before = tensors(learner)
    learner.boundary([4, 5])
    learner.learn(pictures([4, 5, 1]), [4, 5, 1])
    after = tensors(learner)
    for name in ("head/weight", "head/bias"):
        assert torch.equal(after[name][[0, 2, 3]], before[name][[0, 2, 3]])
        assert (after[name][1] != before[name][1]).any()


def test_a_step_is_one_of_torchs_sgd_on_the_masked_loss(tiny: ViT) -> None:
    learner = teach(make(tiny, merge=0.0, lr=0.01, weight_decay=0.1, alignment=False), 1)
    learner.boundary([2, 3])
    adapter = {name: tensor.clone().requires_grad_() for name, tensor in learner.adapters.of(-1).items()}
    head = [table.rows.clone().requires_grad_() for table in learner.head.tables().values()]
    means = learner.gaussians.means.rows[:2].clone()
    groups = [{"params": adapter.values(), "lr": 0.01, "weight_decay": 0.1}, {"params": head, "lr": 0.001}]
    optimiser = torch.optim.SGD(groups, momentum=0.9)
    inputs = evaluation_input(tiny.read(pictures([2, 3])), tiny.preprocessing, tiny.device, tiny.dtype)
    found = tiny.encode(tiny.embed(inputs), additions=learner.adapters.module.additions(adapter)).feature
    logits = F.linear(found, *head)[:, 2:]
    (F.cross_entropy(logits, torch.tensor([0, 1])) + 0.1 * spread_apart(found, means, ALL[:2])).backward()
    optimiser.step()
    learner.learn(pictures([2, 3]), [2, 3])
    for name, tensor in adapter.items():
        torch.testing.assert_close(learner.adapters.of(-1)[name], tensor.detach(), rtol=0, atol=1e-12)
    for table, tensor in zip(learner.head.tables().values(), head, strict=True):
        torch.testing.assert_close(table.rows, tensor.detach(), rtol=0, atol=1e-12)


def test_the_regulariser_is_a_cross_entropy_among_features_and_means() -> None:
    found = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
    means = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    rows = [[2.0, 1.0, 2.0], [1.0, 1.0, 0.0], [2.0, 0.0, 4.0]]  # inner products of mean, first and second feature
    expected = sum(
        math.log(sum(math.exp(product / 0.8) for product in row)) - row[i] / 0.8 for i, row in enumerate(rows)
    )
    assert spread_apart(found, means, ALL[:1]).item() == pytest.approx(expected / 3)


@pytest.mark.parametrize("others", [[], [1], [0, 2, 3], [0, 1, 2, 3, 4]], ids=str)
def test_means_that_do_not_count_are_as_good_as_left_out(others: list[int]) -> None:
    random = torch.Generator().manual_seed(0)
    found, means = (torch.randn(n, 4, generator=random, dtype=torch.float64) for n in (3, 5))
    counts = torch.zeros(5, dtype=torch.bool)
    counts[others] = True
    means[~counts] = torch.nan  # whatever is there
    masked, chosen = found.clone().requires_grad_(), found.clone().requires_grad_()
    one, other = spread_apart(masked, means, counts), spread_apart(chosen, means[others], ALL[: len(others)])
    plain = torch.cat([means[others], found])
    torch.testing.assert_close(other.detach(), F.cross_entropy(plain @ plain.T / 0.8, torch.arange(len(plain))))
    torch.testing.assert_close(one, other)
    torch.testing.assert_close(torch.autograd.grad(one, masked), torch.autograd.grad(other, chosen))


def test_a_sample_alone_is_pushed_by_nothing() -> None:
    found, means = torch.ones(1, 4, requires_grad=True), torch.ones(2, 4)
    loss = spread_apart(found, means, ~ALL[:2])
    assert loss == 0
    assert not torch.autograd.grad(loss, found)[0].any()


def test_features_are_not_pushed_away_from_their_own_class(tiny: ViT) -> None:
    learner = teach(make(tiny), 2)
    learner.boundary([4, 5])
    means = learner.gaussians.means.rows
    for rows, others in (([4, 5], [True] * 4), ([4, 1, 4], [True, False, True, True])):
        found, counts = learner._other_means(torch.tensor(rows))
        assert torch.equal(found, means[:4])
        assert counts.tolist() == others


def test_a_short_stream_lowers_the_loss_and_is_learnt(tiny: ViT) -> None:
    learner = make(tiny)
    learner.boundary([0, 1, 2])
    history = []
    for step in range(20):
        learner.learn(pictures([0, 1, 2], step), [0, 1, 2])
        history.append(learner.report()["ce"])
    assert history[-1] < 0.5 * history[0]
    assert learner.predict(pictures([0, 1, 2], seed=99)).argmax(1).tolist() == [0, 1, 2]


def test_without_boundaries_the_clock_begins_tasks(tiny: ViT) -> None:
    learner = make(tiny, task_min_steps=2)
    for step, kinds in enumerate([[0, 1], [0, 1], [2, 3], [3, 0], [1, 4]]):
        learner.learn(pictures(kinds, step), kinds)
    assert learner.first_rows == [0, 2, 4]
    assert learner.adapters.count == 3
    assert learner.predict(TEST).shape == (6, 5)


# Statistics and alignment


def test_prototypes_are_means_of_the_first_adapters_features(tiny: ViT) -> None:
    learner = teach(make(tiny, augment="crop_flip"), 2)
    images = [pictures([2, 3], step)[0] for step in range(3)]
    torch.testing.assert_close(learner.prototypes.means()[2], features(learner, images, 0).mean(0))


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_alignment_of_predictions_is_what_the_next_boundary_stores(tiny: ViT, covariance: str) -> None:
    learner = teach(make(tiny, covariance=covariance), 2)
    before = tensors(learner)
    learner.predict(TEST)
    assert all(torch.equal(tensors(learner)[name], before[name]) for name in before)
    weight, bias = (t.clone() for t in learner._aligned_head())
    learner.boundary([4, 5])
    after = tensors(learner)
    assert torch.equal(after["head/weight"][:4], weight)
    assert torch.equal(after["head/bias"][:4], bias)
    assert not torch.equal(weight, before["head/weight"])


def test_no_alignment_in_the_first_task_nor_when_it_is_off_nor_before_a_step(tiny: ViT) -> None:
    for learner in (teach(make(tiny), 1), teach(make(tiny, alignment=False), 2)):
        before = tensors(learner)["head/weight"]
        learner.boundary([6, 7])
        assert torch.equal(tensors(learner)["head/weight"][: len(before)], before)
        learner.boundary([8])
        assert torch.equal(tensors(learner)["head/weight"][: len(before)], before)


def test_until_a_task_ends_predictions_may_use_the_head_as_it_is(tiny: ViT) -> None:
    asked, ended = teach(make(tiny, align_lr=0.5), 2), teach(make(tiny, align_lr=0.5, align_when="task_end"), 2)
    plain = teach(make(tiny, alignment=False), 2)
    assert torch.equal(ended.predict(TEST), plain.predict(TEST))
    assert not torch.equal(asked.predict(TEST), plain.predict(TEST))


def test_a_learner_with_another_seed_takes_over_the_alignment(tiny: ViT) -> None:
    learner, twin = teach(make(tiny, align_lr=0.5), 2), make(tiny, seed=77, align_lr=0.5)
    twin.load_state(*learner.state())
    assert torch.equal(learner.predict(TEST), twin.predict(TEST))
    for one in (learner, twin):
        one.boundary([4, 5])
        one.learn(pictures([4, 5]), [4, 5])
    assert same_state(learner, twin)
    assert torch.equal(learner.predict(TEST), twin.predict(TEST))


# Answering


@pytest.mark.parametrize("rounds", [1, 4])
def test_scores_follow_the_self_refined_retrieval(tiny: ViT, rounds: int) -> None:
    learner = teach(make(tiny, alignment=False, lr=0.1, rounds=rounds), 3, steps=2)
    images = pictures([0, 1, 2, 3, 4, 5] * 3, seed=60)
    means, weight, bias = learner.prototypes.means(), learner.head.weight.rows, learner.head.bias.rows
    every = [features(learner, images, task) for task in range(3)]
    expected, turns = [], 0
    for i in range(len(images)):
        cosines = torch.cosine_similarity(every[0][i].unsqueeze(0), means)
        task = int(cosines.argmax()) // 2
        for _ in range(rounds):
            logits = weight @ every[task][i] + bias
            if int(logits.argmax()) // 2 == task:
                break
            task, turns = int(logits.argmax()) // 2, turns + 1
        expected.append(logits.softmax(0) + (3 * cosines).softmax(0))
    assert turns > 0
    torch.testing.assert_close(learner.predict(images), torch.stack(expected).float(), rtol=0, atol=1e-5)


def test_announced_classes_do_not_win_before_they_are_seen(tiny: ViT) -> None:
    learner = teach(make(tiny), 1)
    learner.boundary([2, 3])
    scores = learner.predict(TEST)
    assert scores.shape == (6, 4)
    assert torch.equal(scores[:, 2:], torch.zeros(6, 2))
    torch.testing.assert_close(scores.sum(1), torch.full((6,), 2.0))
    fresh = make(tiny)
    fresh.boundary([0, 1])
    assert bool(fresh.predict(TEST).isfinite().all())


# Counting, refusing


def test_its_parameters_are_those_of_the_paper() -> None:
    learner = prol.create("mos", open_backbone("vit_base_patch16_224", shapes_only=True))
    assert list(learner.paper_counts(200, 10).values()) == [3_197_000]
    for task in range(10):
        learner.boundary(range(20 * task, 20 * task + 20))
    assert learner.footprint().parameters_stored.count == 3_197_000
    assert learner.footprint().trained_now.count == 304_320 + 20 * 769


def test_the_footprint_is_that_of_the_saved_state(tiny: ViT) -> None:
    learner = teach(make(tiny, covariance="full"), 2)
    found, stored = learner.footprint(), tensors(learner)
    parameters = [t for name, t in stored.items() if name.startswith(("adapters/", "head/"))]
    statistics = [t for name, t in stored.items() if name.startswith(("prototypes/", "gaussians/"))]
    assert found.parameters_stored == Amount.of(*parameters)
    assert found.statistics_stored == Amount.of(*statistics)
    assert found.statistics_stored.count == 4 * (64 * 64 + 2 * 64 + 2)
    assert found.samples_stored == Amount(0, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"merge": 1.5}, "merge"),
        ({"bottleneck": 0}, "bottleneck"),
        ({"clip": 0.0}, "clip must be a finite number above 0, or none"),
        ({"reg": -1.0}, "reg"),
    ],
)
def test_options_out_of_range_are_refused(tiny: ViT, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(tiny, **options)
