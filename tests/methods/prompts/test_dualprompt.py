"""DualPrompt: prefixes of all tasks, and of each task's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.naive_vit import fixed_prefixes, outputs, tokens_of
from methods.small_streams import changed, changed_rows, pictures, tensors
from prol.backbones import ViT, open_backbone
from prol.methods.prompts.dualprompt import DualPrompt

KINDS = [0, 1, 2, 3]


def make(vit: ViT, **options: Any) -> DualPrompt:
    given = {"augment": "none", "lr": 0.01, "lr_scaling": False, "g_length": 3, "e_length": 2, "e_blocks": 2, **options}
    learner = prol.create("dualprompt", vit, **given)
    assert isinstance(learner, DualPrompt)
    return learner


def queries(learner: DualPrompt, kinds: list[int], seed: int = 0) -> Tensor:
    return torch.stack([outputs(learner.backbone, t)[0] for t in tokens_of(learner, pictures(kinds, seed))])


def two_tasks(vit: ViT, **options: Any) -> DualPrompt:
    """Classes 0 and 1, then 2 and 3, with keys put where images choose the task of their class."""
    learner = make(vit, **options)
    for number, classes in enumerate(([0, 1], [2, 3])):
        learner.boundary(classes)
        for step in range(3):
            learner.learn(pictures(classes, step), classes)
        query = queries(learner, classes)
        learner.keys.rows[number] = (query - queries(learner, KINDS).mean(0)).mean(0)
    return learner


def expected_scores(learner: DualPrompt, tasks: list[int], kinds: list[int] = KINDS) -> Tensor:
    """Keys before keys and values before values, one image at a time."""
    features = []
    for tokens, task in zip(tokens_of(learner, pictures(kinds)), tasks, strict=True):
        prefixes = {0: learner.general[0], 1: learner.general[1]}
        prefixes |= {2 + i: learner.expert.rows[task, i] for i in range(learner.expert.rows.shape[1])}
        features.append(outputs(learner.backbone, tokens, fixed_prefixes(prefixes))[0])
    weight, bias = tensors(learner)["head/weight"], tensors(learner)["head/bias"]
    return F.linear(torch.stack(features), weight, bias).float()


def test_each_image_takes_the_prefix_of_the_task_whose_key_is_nearest(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    keys = learner.keys.rows
    tasks = F.cosine_similarity(queries(learner, KINDS)[:, None], keys[None], dim=-1).argmax(1).tolist()
    assert tasks == [0, 0, 1, 1]
    torch.testing.assert_close(learner.predict(pictures(KINDS)), expected_scores(learner, tasks), rtol=0, atol=1e-6)
    wrong = expected_scores(learner, [1, 1, 0, 0])
    assert (learner.predict(pictures(KINDS)) - wrong).abs().max() > 1e-3


def test_a_batch_vote_is_asked_for_by_name_and_follows_the_majority(tiny: ViT) -> None:
    learner = two_tasks(tiny, test_selection="batch_vote")
    kinds = [0, 2, 3]
    found = learner.predict(pictures(kinds))
    torch.testing.assert_close(found, expected_scores(learner, [1, 1, 1], kinds), rtol=0, atol=1e-6)
    assert learner.exemptions().keys() == {"batch_independence"}
    assert not make(tiny).exemptions()


def test_keys_and_values_are_not_mixed(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    before, images = learner.predict(pictures(KINDS)), pictures(KINDS)
    learner.general[:, [0, 1]] = learner.general[:, [1, 0]].clone()
    learner.expert.rows[:, :, [0, 1]] = learner.expert.rows[:, :, [1, 0]].clone()
    assert (learner.predict(images) - before).abs().amax(1).min() > 1e-3
    learner.general[:, 1] = learner.expert.rows[:, :, 1] = 0  # nothing but keys: values add nothing, but attract
    torch.testing.assert_close(learner.predict(images), expected_scores(learner, [0, 0, 1, 1]), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{"g_length": 0, "e_length": 0}, {"g_blocks": 0, "e_blocks": 0}], ids=["length 0", "no blocks"]
)
def test_without_prefixes_it_is_a_head_on_the_plain_network(tiny: ViT, options: dict[str, int]) -> None:
    learner = make(tiny, **options)
    learner.boundary(KINDS)
    for step in range(3):
        learner.learn(pictures(KINDS, step), KINDS)
    weight, bias = tensors(learner)["head/weight"], tensors(learner)["head/bias"]
    expected = F.linear(queries(learner, KINDS), weight, bias).float()
    torch.testing.assert_close(learner.predict(pictures(KINDS)), expected, rtol=0, atol=1e-6)


def test_the_first_prefixes_belong_to_all_tasks_and_the_others_to_one(tiny: ViT) -> None:
    learner = make(tiny)
    assert learner.general.shape == (2, 2, 4, 3, 16)
    learner.boundary([0])
    learner.learn(pictures([0]), [0])
    learner.boundary([1])
    assert learner.expert.rows.shape == (2, 2, 2, 4, 2, 16)
    assert learner.keys.rows.shape == (2, 64)


def test_prefixes_and_keys_of_old_tasks_are_frozen_to_the_bit(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    before = tensors(learner)
    for kinds in ([2, 3], [0, 2], [0, 1]):  # also while old classes come again
        learner.learn(pictures(kinds, 5), kinds)
    after = tensors(learner)
    assert changed_rows(before["expert"], after["expert"]) == {1}
    assert changed_rows(before["keys"], after["keys"]) == {1}
    assert "general" in changed(before, after)


def test_a_new_task_goes_on_from_the_last_prefix_but_with_a_key_of_its_own(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    learner.boundary([4])
    expert, keys = learner.expert.rows, learner.keys.rows
    assert torch.equal(expert[2], expert[1])
    assert not torch.equal(expert[1], expert[0])
    assert not torch.isclose(keys[2], keys[1]).any()


def test_in_training_every_sample_takes_the_current_tasks_prefix(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    scores = expected_scores(learner, [1, 1], [0, 2])[:, [0, 2, 3]]
    learner.learn(pictures([0, 2]), [0, 2])
    # Class 0, which came again, competes with the task's classes 2 and 3.
    expected = F.cross_entropy(scores.double(), torch.tensor([0, 1])).item()
    assert learner.report()["ce"] == pytest.approx(expected, rel=1e-4)


def test_the_loss_rewards_the_cosine_of_the_current_tasks_key(tiny: ViT) -> None:
    learner = two_tasks(tiny, pull=0.5)
    cosine = F.cosine_similarity(queries(learner, [2, 3], 5), learner.keys.rows[1:], dim=-1).mean().item()
    learner.learn(pictures([2, 3], 5), [2, 3])
    r = learner.report()
    assert r["pull"] == pytest.approx(cosine)
    assert r["total"] == pytest.approx(r["ce"] - 0.5 * r["pull"])


def test_the_footprint_says_what_this_task_trains(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    general, task, head = 2 * 2 * 3 * 64, 2 * 2 * 2 * 64 + 64, 4 * 65
    assert learner.footprint().trained_now.count == general + task + head
    assert learner.footprint().parameters_stored.count == general + 2 * task + head


@pytest.mark.parametrize(("length", "count"), [(20, 1_098_440), (5, 407_240)])
def test_the_counts_are_those_of_the_published_settings(length: int, count: int) -> None:
    base = open_backbone("vit_base_patch16_224", shapes_only=True)
    options = DualPrompt.read_options({"e_length": length})
    assert list(DualPrompt(base, options).paper_counts(200, 10).values()) == [count]


def test_the_papers_own_count_is_met_by_expert_prefixes_in_seven_blocks_alone() -> None:
    base = open_backbone("vit_base_patch16_224", shapes_only=True)
    options = DualPrompt.read_options({"g_blocks": 0, "e_blocks": 7})
    final_norm = 2 * 768
    assert next(iter(DualPrompt(base, options).paper_counts(200, 10).values())) + final_norm == 700_616
