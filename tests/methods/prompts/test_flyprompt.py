"""FlyPrompt: experts by the number of images, a router in closed form, averages of the head, and the surest head."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from golden_files import tiny_vit
from methods.device_reads import NothingRead
from methods.naive_vit import outputs, tokens_of
from methods.small_streams import pictures, same_state, tensors
from prol.backbones import ViT
from prol.data.builtin import digits
from prol.methods.prompts.flyprompt import FlyPrompt, surest

KINDS = [0, 1, 2, 3]


def make(vit: ViT, **options: Any) -> FlyPrompt:
    small = {"augment": "none", "blocks": 2, "length": 3, "features": 30, "ridge": 5.0, "expert_samples": 8, "lr": 0.01}
    learner = prol.create("flyprompt", vit, **{**small, **options})
    assert isinstance(learner, FlyPrompt)
    return learner


def learn(learner: FlyPrompt, kinds: list[int], seed: int = 0) -> None:
    learner.learn(pictures(kinds, seed), kinds)


def taught(vit: ViT, **options: Any) -> FlyPrompt:
    """Three experts of two chunks each, with other classes in each."""
    learner = make(vit, **options)
    for expert in range(3):
        for step in range(2):
            learn(learner, [expert, expert + 1] * 2, 10 * expert + step)
    return learner


def plain_features(learner: FlyPrompt, images: object) -> Tensor:
    """Class features `[N, D]` of the untouched network."""
    return torch.stack([outputs(learner.backbone, tokens)[0] for tokens in tokens_of(learner, images)])


def prompted_features(learner: FlyPrompt, images: object, experts: list[int]) -> Tensor:
    """Class features `[N, D]`, each image with the prompts of its expert put behind the tokens and cut off again."""
    vit, found = learner.backbone, []
    for tokens, expert in zip(tokens_of(learner, images), experts, strict=True):
        x = tokens.unsqueeze(0)
        for number, block in enumerate(vit.model.blocks):
            added = learner.prompts.rows[expert, number] + vit.model.pos_embed[0, :1] if number < 2 else x[0, :0]
            x = block(torch.cat([x, added.unsqueeze(0)], dim=1))[:, : len(tokens)]
        found.append(vit.model.norm(x)[0, 0])
    return torch.stack(found)


# Experts


def test_experts_follow_the_number_of_images_and_not_boundaries(tiny: ViT) -> None:
    learner, found = make(tiny, experts=3), []
    for step in range(7):
        learner.boundary()
        learn(learner, [0, 1, 2], step)
        found.append((learner.prompts.count, learner.adam.step))
    # The next expert, with a fresh optimiser, begins after 9 and after 18 images.
    assert found == [(1, 3), (1, 6), (1, 9), (2, 3), (2, 6), (2, 9), (3, 3)]
    for step in range(5):
        learn(learner, KINDS, step)
    assert learner.prompts.count == 3


def test_a_new_expert_is_the_mean_of_the_earlier_ones_and_its_averages_are_the_online_head(tiny: ViT) -> None:
    learner = taught(tiny)
    before, head = learner.prompts.rows.clone(), tensors(learner)["head/weight"]
    assert (before[0] - before[1]).abs().min() > 0
    learner.options = type(learner.options)(**{**vars(learner.options), "lr": 0.0})
    learn(learner, KINDS)
    torch.testing.assert_close(learner.prompts.rows[3], before.mean(0), rtol=0, atol=1e-12)
    averages = tensors(learner)["averages/weight"]
    assert averages.shape == (4, 4, 2, 64)
    assert torch.equal(averages[:, 3], head.unsqueeze(1).expand(-1, 2, -1))


def test_earlier_experts_are_frozen_to_the_bit(tiny: ViT) -> None:
    learner = taught(tiny)
    before = tensors(learner)
    learn(learner, KINDS, 50)
    assert torch.equal(learner.prompts.rows[:3], before["prompts"])
    for name in ("weight", "bias"):
        assert torch.equal(tensors(learner)[f"averages/{name}"][:, :3], before[f"averages/{name}"])


# Training


def test_a_step_is_that_of_prompts_behind_the_tokens_and_of_the_classes_in_the_chunk(tiny: ViT) -> None:
    learner = make(tiny, steps=1)
    learn(learner, KINDS)
    weight, bias = tensors(learner)["head/weight"], tensors(learner)["head/bias"]
    prompts = learner.prompts.rows.clone()
    images, rows = pictures([1, 2, 1], 5), torch.tensor([1, 2, 1])
    learner.prompts.rows.requires_grad_()
    leaf = weight.clone().requires_grad_()
    logits = F.linear(prompted_features(learner, images, [0, 0, 0]), leaf, bias)
    expected = F.cross_entropy(logits[:, [1, 2]], rows - 1)
    gradient = torch.autograd.grad(expected, leaf)[0]
    assert gradient[[0, 3]].abs().max() == 0
    learner.adam.reset()
    learner.learn(images, [1, 2, 1])
    assert learner.report()["ce"] == pytest.approx(expected.item(), rel=1e-9)
    torch.testing.assert_close(tensors(learner)["adam/head.weight/mean"], 0.1 * gradient, rtol=1e-9, atol=1e-15)
    assert torch.equal(tensors(learner)["head/weight"][[0, 3]], weight[[0, 3]])
    assert (learner.prompts.rows - prompts).abs().min() > 0


def test_a_chunk_takes_several_steps_each_on_a_new_augmentation(tiny: ViT) -> None:
    augmented = {"augment": "crop_flip", "expert_samples": 1000}
    learner, single = make(tiny, **augmented), make(tiny, **augmented, steps=1)
    learn(learner, KINDS)
    for _ in range(3):
        learn(single, KINDS)
    assert learner.adam.step == single.adam.step == 3
    assert torch.equal(tensors(learner)["head/weight"], tensors(single)["head/weight"])
    assert torch.equal(tensors(learner)["random"], tensors(single)["random"])


def test_averages_follow_the_online_head_after_each_step(tiny: ViT) -> None:
    learner = make(tiny, steps=1, fast_decay=0.5, slow_decay=0.75, expert_samples=1000)
    expected = torch.zeros(2, 4, 64).double()
    for step in range(4):
        learn(learner, KINDS, step)
        head = tensors(learner)["head/weight"]
        for average, decay in zip(expected, (0.5, 0.75), strict=True):
            average.copy_(decay * average + (1 - decay) * head)
    torch.testing.assert_close(tensors(learner)["averages/weight"][:, 0].transpose(0, 1), expected)
    assert expected.abs().max() > 0


def test_a_step_that_fails_after_others_takes_the_whole_chunk_back(tiny: ViT) -> None:
    learner = make(tiny)
    learn(learner, KINDS)
    learner.options = type(learner.options)(**{**vars(learner.options), "lr": 1e308})
    twin = learner.clone()
    for seed in (1, 2):  # the second one would also begin an expert
        with pytest.raises(ValueError, match=r"not finite at step [1-9]"):
            learn(learner, KINDS, seed)
        assert same_state(learner, twin)
        for one in (learner, twin):
            one.samples = 8


def test_nothing_is_read_from_the_device_in_a_step(tiny: ViT) -> None:
    learner = taught(tiny)
    layout, staged = learner.layout(), learner.staged(tiny.read(pictures(KINDS)))()
    with NothingRead():
        learner.one_step(*learner.look_ahead(*staged).values(), torch.arange(4))
    assert learner.layout() == layout


# Predicting


def test_the_router_is_a_ridge_regression_of_the_experts_on_random_features(tiny: ViT) -> None:
    learner, features, experts = taught(tiny), [], []
    for expert in range(3):
        for step in range(2):
            kinds = [expert, expert + 1] * 2
            features.append(plain_features(learner, pictures(kinds, 10 * expert + step)))
            experts += [expert] * 4
    images = pictures([0, 1, 2, 3] * 3, seed=77)
    phi, query = (
        np.maximum(x.numpy() @ learner.layer["weight"].numpy(), 0)
        for x in (torch.cat(features), plain_features(learner, images))
    )
    weight = np.linalg.solve(phi.T @ phi + 5.0 * np.eye(30), phi.T @ np.eye(3)[experts])
    solved = learner._solved_router()
    np.testing.assert_allclose(solved.weight.numpy(), weight.T, rtol=1e-7, atol=1e-10)
    found = learner.route(plain_features(learner, images)).tolist()
    assert found == (query @ weight).argmax(1).tolist()
    assert len(set(found)) == 3


def test_the_surest_of_three_heads_predicts_with_the_prompts_of_the_images_expert(tiny: ViT) -> None:
    learner, images = taught(tiny), pictures(KINDS * 2, seed=77)
    learner.boundary(["not yet met"])
    experts = learner.route(plain_features(learner, images)).tolist()
    assert len(set(experts)) > 1
    state, found = tensors(learner), []
    for feature, expert in zip(prompted_features(learner, images, experts), experts, strict=True):
        heads = [(state["head/weight"], state["head/bias"])]
        heads += [(state["averages/weight"][:, expert, j], state["averages/bias"][:, expert, j]) for j in range(2)]
        found.append(torch.stack([(weight @ feature + bias)[:4].softmax(0) for weight, bias in heads]).amax(0))
    scores = learner.predict(images)
    torch.testing.assert_close(scores[:, :4].exp(), torch.stack(found).float(), rtol=1e-5, atol=1e-7)
    assert scores[:, 4].isneginf().all()
    assert torch.equal(learner.predict_encoded(learner.encode_images(images), images), scores)


def test_classes_are_told_apart_whose_probabilities_round_to_one() -> None:
    logits = torch.tensor([[[30.0, 0.0], [0.0, 40.0], [0.0, 0.0]]])
    found = surest(logits, torch.tensor([True, True, True]))
    assert logits.softmax(1).amax(2)[0, :2].tolist() == [1, 1]
    assert found.argmax(1).tolist() == [1]


def test_four_digits_are_learnt_in_one_pass() -> None:
    data = digits()
    order = np.random.default_rng(0).permutation(np.flatnonzero(data.train.labels < 4))[:200]
    learner = make(tiny_vit(torch.float32), lr=0.02, features=100, expert_samples=100)
    for chunk in np.split(order, 10):
        learner.learn(data.train.load(chunk).images, data.train.labels[chunk])
    held = np.flatnonzero(data.test.labels < 4)[:80]
    rows = learner.predict(data.test.load(held).images).argmax(1).tolist()
    assert learner.prompts.count == 2
    assert np.mean([learner.classes[row] for row in rows] == data.test.labels[held]) > 0.6


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"blocks": 5}, "5 prompted blocks, but the backbone has 4"),
        ({"slow_decay": 1.1}, "slow_decay must be from 0 to 1"),
        ({"expert_samples": 0}, "expert_samples must be at least 1"),
        ({"task_min_steps": 3}, "unknown option"),
    ],
)
def test_options_that_make_no_sense_are_refused(tiny: ViT, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(tiny, **options)
