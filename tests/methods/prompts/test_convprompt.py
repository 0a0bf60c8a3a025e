"""ConvPrompt without text descriptors: generators that grow with the tasks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.naive_vit import outputs, tokens_of
from methods.small_streams import changed, changed_rows, pictures, tensors
from prol.backbones import ViT, open_backbone
from prol.methods.prompts.convprompt import ConvPrompt, generators_by_likeness

KINDS = [0, 1, 2, 3]


def make(vit: ViT, **options: Any) -> ConvPrompt:
    given = {
        "augment": "none",
        "lr": 0.005,
        "lr_scaling": False,
        "blocks": 3,
        "length": 2,
        "schedule": "3,2",
        **options,
    }
    learner = prol.create("convprompt", vit, **given)
    assert isinstance(learner, ConvPrompt)
    return learner


def two_tasks(vit: ViT, steps: int = 3, **options: Any) -> ConvPrompt:
    learner = make(vit, **options)
    for classes in ([0, 1], [2, 3]):
        learner.boundary(classes)
        for step in range(steps):
            learner.learn(pictures(classes, step), classes)
    return learner


def head_scores(learner: ConvPrompt, features: Tensor) -> Tensor:
    """Each task's head by itself: LayerNorm, then Linear."""
    t, answers = tensors(learner), []
    for task, rows in enumerate((slice(0, 2), slice(2, 4))):
        normed = F.layer_norm(features, (64,), t["head/scale"][task], t["head/shift"][task])
        answers.append(F.linear(normed, t["head/weight"][rows], t["head/bias"][rows]))
    return torch.cat(answers, dim=1).float()


def expected_scores(learner: ConvPrompt) -> Tensor:
    """One image, one block, one head, one side and one generator at a time."""
    t = {name.removeprefix("source/"): tensor for name, tensor in tensors(learner).items()}
    features = []
    for tokens in tokens_of(learner, pictures(KINDS)):
        raw: list[Tensor] = []

        def prefix_of(block: int, class_token: Tensor, raw: list[Tensor] = raw) -> tuple[Tensor, Tensor] | None:
            if block >= learner.options.blocks:
                return None
            hidden = F.relu(t["matcher.in.weight"] @ class_token + t["matcher.in.bias"])
            mapped = t["matcher.out.weight"] @ hidden + t["matcher.out.bias"]
            own = torch.zeros(2, 4, 2, 16).double()
            for side, head, j in torch.cartesian_prod(*map(torch.arange, (2, 4, len(t["keys"])))).tolist():
                patch, kernel = t["base"][block, side, head], t["generator.weight"][j, block, side, head]
                prompt = F.conv2d(patch[None, None], kernel[None, None])[0, 0]
                prompt = prompt + t["generator.bias"][j, block, side, head]
                own[side, head] += F.cosine_similarity(mapped, t["keys"][j], dim=0) * prompt
            raw.append(own)
            summed = own + raw[block - 1] if block else own
            return summed[0], summed[1]

        features.append(outputs(learner.working, tokens, prefix_of)[0])
    return head_scores(learner, torch.stack(features))


def test_each_image_gets_its_own_mixture_by_the_class_token_that_enters_the_block(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    torch.testing.assert_close(learner.predict(pictures(KINDS)), expected_scores(learner), rtol=0, atol=1e-6)


def test_keys_and_values_are_not_mixed(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    before, base = learner.predict(pictures(KINDS)), learner.source.shared["base"]
    base[:, [0, 1]] = base[:, [1, 0]].clone()
    for table in (learner.source.weight, learner.source.bias):
        table.rows[:, :, [0, 1]] = table.rows[:, :, [1, 0]].clone()
    assert (learner.predict(pictures(KINDS)) - before).abs().amax(1).min() > 1e-3


def test_without_prompted_blocks_it_is_heads_on_the_network_with_its_tuned_norms(tiny: ViT) -> None:
    learner = two_tasks(tiny, blocks=0)
    plain = torch.stack([outputs(learner.working, tokens)[0] for tokens in tokens_of(learner, pictures(KINDS))])
    torch.testing.assert_close(learner.predict(pictures(KINDS)), head_scores(learner, plain), rtol=0, atol=1e-6)


# What is frozen


@pytest.mark.parametrize("kinds", [[2, 3], [0, 2], [0, 1]], ids=["current", "mixed", "old only"])
def test_old_generators_keys_and_heads_are_frozen_to_the_bit(tiny: ViT, kinds: list[int]) -> None:
    learner = two_tasks(tiny)
    before = tensors(learner)
    learner.learn(pictures(kinds, 5), kinds)
    after = tensors(learner)
    assert changed_rows(before["source/generator.weight"], after["source/generator.weight"]) == {3, 4}
    assert changed_rows(before["source/generator.bias"], after["source/generator.bias"]) == {3, 4}
    assert torch.equal(before["source/keys"], after["source/keys"])
    assert changed_rows(before["head/weight"], after["head/weight"]) == {2, 3}
    assert changed_rows(before["head/scale"], after["head/scale"]) == {1}
    assert {"source/base", "source/matcher.in.weight", "source/matcher.out.bias"} <= changed(before, after)


def test_keys_are_trained_by_option(tiny: ViT) -> None:
    learner = two_tasks(tiny, train_keys=True)
    before = tensors(learner)["source/keys"]
    learner.learn(pictures([2, 3], 5), [2, 3])
    assert changed_rows(before, tensors(learner)["source/keys"]) == {3, 4}


def test_norms_move_at_the_full_rate_in_the_first_task_and_at_a_share_of_it_later(tiny: ViT) -> None:
    learner = make(tiny)
    for classes, rate in (([0, 1], 0.005), ([2, 3], 0.005 * 0.005)):
        learner.boundary(classes)
        before = tensors(learner)
        learner.learn(pictures(classes), classes)
        after = tensors(learner)
        moved = [(after[name] - before[name]).abs().max() for name in before if name.startswith("norm/")]
        assert len(moved) == 18
        assert torch.stack(moved).max().item() == pytest.approx(rate, rel=1e-3)


def test_the_drift_from_the_last_task_is_punished_by_its_weight(tiny: ViT) -> None:
    learner = two_tasks(tiny, drift=0.5)
    t = tensors(learner)
    names = [name.removeprefix("source/anchor.") for name in t if name.startswith("source/anchor.")]
    assert len(names) == 5
    expected = sum((t[f"source/{name}"] - t[f"source/anchor.{name}"]).abs().sum().item() for name in names)
    assert expected > 0
    learner.learn(pictures([2, 3], 5), [2, 3])
    r = learner.report()
    assert r["drift"] == pytest.approx(expected)
    assert r["total"] == pytest.approx(r["ce"] + 0.5 * r["drift"])
    tight, loose = (two_tasks(tiny, steps=8, drift=drift).report()["drift"] for drift in (10.0, 0.0))
    assert tight < 0.7 * loose


# How many generators


def grown(learner: ConvPrompt, tasks: int, chunks: int = 1) -> list[int]:
    """Generators in all after each task of one class."""
    counts = []
    for kind in range(tasks):
        learner.boundary([kind])
        for step in range(chunks):
            learner.learn(pictures([kind, kind], step), [kind, kind])
        counts.append(learner.source.keys.count)
    return counts


@pytest.mark.parametrize(
    ("schedule", "expected"), [("5,2", [5, 7, 9, 11]), ("2", [2, 4, 6, 8]), ("1,0,2", [1, 1, 3, 5])]
)
def test_the_schedule_gives_each_task_its_number_and_the_last_holds_on(
    tiny: ViT, schedule: str, expected: list[int]
) -> None:
    assert grown(make(tiny, schedule=schedule), 4) == expected


def test_auto_waits_for_its_chunks_and_then_goes_by_likeness(tiny: ViT) -> None:
    learner = make(tiny, generators="auto", auto_chunks=3, schedule="4")
    assert grown(learner, 1) == [4]
    learner.boundary([1, 2])
    for step in range(2):
        learner.learn(pictures([1, 2], step), [1, 2])
        assert learner.source.keys.count == 4
    learner.learn(pictures([1, 2], 2), [1, 2])
    assert learner.counts.rows.tolist() == [2, 3, 3]
    added = generators_by_likeness(learner.sums.rows, learner.counts.rows, 1, 4)
    assert learner.source.keys.count == 4 + added
    before = tensors(learner)["source/generator.weight"]
    learner.learn(pictures([1, 2], 3), [1, 2])
    moved = changed_rows(before, tensors(learner)["source/generator.weight"])
    assert moved == set(range(4, 4 + added))


def test_autos_means_are_of_the_untouched_network(tiny: ViT) -> None:
    learner = make(tiny, generators="auto")
    learner.learn(pictures([0, 1]), [0, 1])
    expected = torch.stack([outputs(tiny, tokens)[0] for tokens in tokens_of(learner, pictures([0, 1]))])
    torch.testing.assert_close(learner.sums.rows, expected)
    assert learner.footprint().statistics_stored.count == 2 * 65
    assert two_tasks(tiny).footprint().statistics_stored.count == 0


def test_a_task_shorter_than_auto_looks_goes_without(tiny: ViT) -> None:
    assert grown(make(tiny, generators="auto", auto_chunks=3, schedule="4"), 3) == [4, 4, 4]


# Counts


def test_the_count_is_the_papers() -> None:
    base = open_backbone("vit_base_patch16_224", shapes_only=True)
    options = ConvPrompt.read_options({"schedule": "5,2,2,2,2,2,1,1,1,1"})
    assert list(ConvPrompt(base, options).paper_counts(200, 10).values()) == [1_433_816]
    assert ConvPrompt(base, ConvPrompt.read_options({"generators": "auto"})).paper_counts(200, 10) == {}


def test_the_footprint_counts_frozen_generators_and_the_copy_as_stored_only(tiny: ViT) -> None:
    learner = two_tasks(tiny)
    generator, key, norms = 3 * 2 * 4 * 290, 16, 18 * 64
    shared = 3 * 2 * 4 * 18 * 32 + 32 * 65 + 16 * 33
    heads = 2 * 2 * 64 + 4 * 65
    found = learner.footprint()
    assert found.trained_now.count == shared + 2 * generator + norms + heads // 2
    assert found.parameters_stored.count == 2 * shared + 5 * (generator + key) + norms + heads


@pytest.mark.parametrize("schedule", ["", "0,1", "5,x", "5,,2", "-1", "1.5"])
def test_a_schedule_that_makes_no_sense_is_refused(tiny: ViT, schedule: str) -> None:
    with pytest.raises(ValueError, match="schedule"):
        make(tiny, schedule=schedule)
