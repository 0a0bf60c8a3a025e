"""CODA-Prompt: mixtures of components, new ones with each task."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.naive_vit import fixed_prefixes, outputs, tokens_of
from methods.small_streams import changed_rows, pictures, tensors
from prol.backbones import ViT, open_backbone
from prol.methods.prompts.coda_prompt import CODAPrompt

KINDS = [0, 1, 2, 3]
NAMES = ("prompts", "keys", "attention")


def make(vit: ViT, **options: Any) -> CODAPrompt:
    given = {"augment": "none", "lr": 0.01, "lr_scaling": False, "blocks": 3, "components": 4, "length": 6, **options}
    learner = prol.create("coda_prompt", vit, **given)
    assert isinstance(learner, CODAPrompt)
    return learner


def two_tasks(vit: ViT, **options: Any) -> CODAPrompt:
    learner = make(vit, **options)
    for classes in ([0, 1], [2, 3]):
        learner.boundary(classes)
        for step in range(3):
            learner.learn(pictures(classes, step), classes)
    return learner


def component(learner: CODAPrompt, name: str) -> Tensor:
    return learner.tables[name].rows


def expected_scores(learner: CODAPrompt) -> Tensor:
    """One image, one block and one component at a time."""
    features = []
    for tokens in tokens_of(learner, pictures(KINDS)):
        query, prefixes = outputs(learner.backbone, tokens)[0], {}
        for block in range(learner.options.blocks):
            prefix = torch.zeros_like(component(learner, "prompts")[0, block])
            for prompt, key, attention in zip(*(component(learner, name) for name in NAMES), strict=True):
                prefix += F.cosine_similarity(query * attention[block], key[block], dim=0) * prompt[block]
            prefixes[block] = prefix
        features.append(outputs(learner.backbone, tokens, fixed_prefixes(prefixes))[0])
    weight, bias = tensors(learner)["head/weight"], tensors(learner)["head/bias"]
    return F.linear(torch.stack(features), weight, bias).float()


def test_each_image_gets_its_own_mixture_of_all_components(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    torch.testing.assert_close(learner.predict(pictures(KINDS)), expected_scores(learner), rtol=0, atol=1e-6)


def test_keys_and_values_are_not_mixed(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    before, prompts = learner.predict(pictures(KINDS)), component(learner, "prompts")
    prompts *= 10
    louder = learner.predict(pictures(KINDS))
    prompts[:, :, [0, 1]] = prompts[:, :, [1, 0]].clone()
    assert (louder - before).abs().max() > 1e-3
    assert (learner.predict(pictures(KINDS)) - louder).abs().amax(1).min() > 1e-3
    torch.testing.assert_close(learner.predict(pictures(KINDS)), expected_scores(learner), rtol=0, atol=1e-6)


@pytest.mark.parametrize("options", [{"length": 0}, {"blocks": 0}], ids=["length 0", "no blocks"])
def test_without_prefixes_it_is_a_head_on_the_plain_network(tiny: ViT, options: dict[str, int]) -> None:
    learner = two_tasks(tiny, **options)
    plain = torch.stack([outputs(tiny, tokens)[0] for tokens in tokens_of(learner, pictures(KINDS))])
    expected = F.linear(plain, tensors(learner)["head/weight"], tensors(learner)["head/bias"]).float()
    torch.testing.assert_close(learner.predict(pictures(KINDS)), expected, rtol=0, atol=1e-6)


def test_components_of_old_tasks_are_frozen_to_the_bit(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    before = tensors(learner)
    for kinds in ([2, 3], [0, 2], [0, 1]):  # also while old classes come again
        learner.learn(pictures(kinds, 5), kinds)
    for name in NAMES:
        assert changed_rows(before[f"components/{name}"], tensors(learner)[f"components/{name}"]) == {4, 5, 6, 7}


@pytest.mark.parametrize("name", NAMES)
def test_new_components_begin_at_right_angles_to_each_other_and_to_the_old(tiny: ViT, name: str) -> None:
    learner = two_tasks(tiny)
    learner.boundary([4])
    for block in range(3):
        rows = component(learner, name)[:, block].flatten(1)
        new, old = rows[8:], rows[:8]
        torch.testing.assert_close(new @ new.T, torch.eye(4).double(), rtol=0, atol=1e-12)
        assert (new @ old.T).abs().max() < 1e-12


def test_tasks_may_be_more_than_there_are_directions(tiny: ViT) -> None:
    learner = make(tiny, components=30)
    for kind in range(4):
        learner.boundary([kind])
        learner.learn(pictures([kind]), [kind])
    assert component(learner, "keys").shape == (120, 3, 64)
    assert learner.predict(pictures(KINDS)).isfinite().all()


def test_the_penalty_is_asked_for_by_option_and_is_over_components_keys_and_attention(tiny: ViT) -> None:
    learner = two_tasks(tiny, orthogonality=0.5)
    expected = 0.0
    for name in NAMES:
        for block in range(3):
            rows = component(learner, name)[:, block].flatten(1)
            expected += (rows @ rows.T - torch.eye(8).double()).square().mean().item()
    learner.learn(pictures([2, 3], 5), [2, 3])
    r = learner.report()
    assert r["orthogonality"] == pytest.approx(expected)
    assert r["total"] == pytest.approx(r["ce"] + 0.5 * r["orthogonality"])
    without = two_tasks(tiny)
    assert without.report()["orthogonality"] == 0
    assert without.report()["total"] == without.report()["ce"]


def test_the_footprint_says_what_this_task_trains(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    task, head = 4 * 3 * (6 * 64 + 64 + 64), 4 * 65
    assert learner.footprint().trained_now.count == task + head
    assert learner.footprint().parameters_stored.count == 2 * task + head


def test_the_count_is_the_papers_and_the_head() -> None:
    base = open_backbone("vit_base_patch16_224", shapes_only=True)
    found = CODAPrompt(base, CODAPrompt.read_options({})).paper_counts(200, 10)
    assert list(found.values()) == [3_840_000 + 153_800]


@pytest.mark.parametrize(("options", "says"), [({"length": 5}, "even"), ({"components": 0}, "components")])
def test_options_that_make_no_sense_are_refused(tiny: ViT, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(tiny, **options)
