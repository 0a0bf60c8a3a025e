"""EASE: a feature space a task, and class means in all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import prol
from methods.small_streams import pictures, tensors
from prol.backbones import ViT, evaluation_input
from prol.learner import Amount
from prol.methods.adapters.ease import EASE, subspace_scores

PLAIN = {"augment": "none", "bottleneck": 4, "scale": 1.0}
TEST = pictures([0, 1, 2, 3, 4, 5], seed=50)


def make(vit: ViT, seed: int = 0, **options: Any) -> EASE:
    learner = prol.create("ease", vit, seed=seed, **{**PLAIN, **options})
    assert isinstance(learner, EASE)
    return learner


def teach(learner: EASE, tasks: int, steps: int = 3) -> EASE:
    """Two classes a task: 0 and 1, then 2 and 3, and so on."""
    for task in range(tasks):
        kinds = [2 * task, 2 * task + 1]
        learner.boundary(kinds)
        for step in range(steps):
            learner.learn(pictures(kinds, step), kinds)
    return learner


def features(learner: EASE, images: object, task: int) -> Tensor:
    vit, adapters = learner.backbone, learner.adapters
    inputs = evaluation_input(vit.read(images), learner.preprocessing, vit.device, vit.dtype)
    return vit.encode(vit.embed(inputs), additions=adapters.module.additions(adapters.of(task))).feature


def test_scores_weigh_the_own_space_fully_and_the_mean_of_the_others_by_alpha() -> None:
    random = torch.Generator().manual_seed(0)
    found, means = (torch.randn(3, n, 4, generator=random, dtype=torch.float64) for n in (2, 5))
    own, filled = torch.tensor([0, 0, 1, 2, 2]), torch.tensor([True, True, True])
    scores = subspace_scores(found, means, filled, own, alpha=0.1)
    for sample in range(2):
        for row in range(5):
            cosines = [float(torch.cosine_similarity(found[t, sample], means[t, row], dim=0)) for t in range(3)]
            others = [cosine for t, cosine in enumerate(cosines) if t != own[row]]
            expected = cosines[int(own[row])] + 0.1 * sum(others) / 2
            assert float(scores[sample, row]) == pytest.approx(expected)
    alone = subspace_scores(found[:1], means[:1], filled[:1], own * 0, alpha=0.1)
    torch.testing.assert_close(alone, torch.cosine_similarity(found[0].unsqueeze(1), means[0].unsqueeze(0), dim=-1))


def test_a_space_without_class_means_is_left_out() -> None:
    found, means = torch.ones(3, 1, 4), torch.ones(3, 2, 4)
    means[2] = 0
    scores = subspace_scores(found, means, torch.tensor([True, True, False]), torch.tensor([0, 1]), alpha=0.5)
    torch.testing.assert_close(scores, torch.full((1, 2), 1.5))


def test_predictions_are_cosines_to_measured_and_synthesised_means(tiny: ViT) -> None:
    learner = teach(make(tiny), 2)
    means = torch.stack([space.means() for space in learner.prototypes])
    assert torch.equal(means[1, :2], torch.zeros(2, 64).double())  # classes 0 and 1 were never seen in space 1
    weights = torch.cosine_similarity(means[0, :2].unsqueeze(1), means[0, 2:].unsqueeze(0), dim=-1).softmax(1)
    means[1, :2] = weights @ means[1, 2:]
    cosines = [
        torch.cosine_similarity(features(learner, TEST, task).unsqueeze(1), means[task].unsqueeze(0), dim=-1)
        for task in range(2)
    ]
    expected = torch.cat([(cosines[0] + 0.1 * cosines[1])[:, :2], (cosines[1] + 0.1 * cosines[0])[:, 2:]], dim=1)
    torch.testing.assert_close(learner.predict(TEST), expected.float(), rtol=0, atol=1e-5)


def test_each_task_trains_a_fresh_adapter_and_leaves_the_old_bit_for_bit(tiny: ViT) -> None:
    learner = teach(make(tiny), 2)
    before = {name: t for name, t in tensors(learner).items() if name.startswith(("adapters/", "prototypes"))}
    learner.boundary([4, 5])
    assert torch.equal(tensors(learner)["adapters/up"][2], torch.zeros(4, 64, 4).double())
    assert not torch.equal(tensors(learner)["adapters/down"][2], before["adapters/down"][1])
    assert torch.equal(tensors(learner)["head/weight"], torch.zeros(6, 64).double())
    for step in range(3):
        learner.learn(pictures([4, 5], step), [4, 5])
    after = tensors(learner)
    assert after["adapters/up"][2].abs().max() > 0
    for name, kept in before.items():
        assert torch.equal(after[name][: len(kept)], kept), name


def test_prototypes_in_frozen_spaces_are_means_of_unaugmented_features(tiny: ViT) -> None:
    learner = teach(make(tiny, augment="crop_flip"), 2)
    images = [pictures([2, 3], step)[0] for step in range(3)]
    torch.testing.assert_close(learner.prototypes[0].means()[2], features(learner, images, 0).mean(0))


def test_a_class_that_comes_again_is_measured_in_the_later_spaces(tiny: ViT) -> None:
    learner = teach(make(tiny), 2)
    assert learner.prototypes[1].measured().tolist() == [False, False, True, True]
    counts = learner.prototypes[0].counts.rows.clone()
    learner.learn(pictures([0, 2]), [0, 2])
    assert learner.prototypes[1].measured().tolist() == [True, False, True, True]
    assert (learner.prototypes[0].counts.rows - counts).tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("mask", ["task", "batch", "seen"])
def test_a_short_stream_lowers_the_loss_and_is_learnt(tiny: ViT, mask: str) -> None:
    learner = make(tiny, mask=mask)
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
        assert bool(learner.predict(TEST).isfinite().all())
    assert learner.first_rows == [0, 2, 4]
    assert len(learner.prototypes) == learner.adapters.count == 3


def test_announced_classes_do_not_win_before_they_are_seen(tiny: ViT) -> None:
    learner = teach(make(tiny), 1)
    before = learner.predict(TEST)
    learner.boundary([2, 3])
    scores = learner.predict(TEST)
    assert torch.equal(scores[:, 2:], torch.full((6, 2), -torch.inf))
    assert torch.equal(scores[:, :2], before)


def test_the_footprint_is_that_of_the_saved_state(tiny: ViT) -> None:
    learner = teach(make(tiny), 2)
    found, stored = learner.footprint(), tensors(learner)
    adapter = 4 * (64 * 4 + 4 + 64 * 4 + 64)
    parameters = [t for name, t in stored.items() if name.startswith(("adapters/", "head/"))]
    assert found.parameters_stored == Amount.of(*parameters)
    assert found.parameters_stored.count == 2 * adapter + 4 * 65
    assert found.trained_now.count == adapter + 2 * 65
    assert found.statistics_stored.count == 2 * 4 * 65
    assert found.samples_stored == Amount(0, 0)


@pytest.mark.parametrize(("options", "says"), [({"alpha": -0.1}, "alpha"), ({"bottleneck": 0}, "bottleneck")])
def test_options_out_of_range_are_refused(tiny: ViT, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(tiny, **options)
