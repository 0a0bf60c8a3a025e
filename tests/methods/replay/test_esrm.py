"""ESRM: its loss against loops, what it stores, and what its passes leave alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.small_streams import changed, pictures, tensors
from prol.backbones import ResNet
from prol.engine.similarity import unit
from prol.methods.replay.esrm import ESRM, group_contrast
from prol.methods.replay.sample_memory import Insertion
from prol.methods.replay.views import FULL, apply_views

SMALL = {"memory": 6, "replay": 4, "projection": 5}


def make(backbone: ResNet, **options: Any) -> ESRM:
    learner = prol.create("esrm", backbone, **{**SMALL, **options})
    assert isinstance(learner, ESRM)
    return learner


def teach(learner: ESRM, first: int, steps: int) -> None:
    for step in range(first, first + steps):
        kinds = [0, 1, 0, 1] if step < 4 else [2, 3, 0, 2]
        learner.learn(pictures(kinds, seed=step), kinds)


def as_inputs(learner: ESRM, kinds: list[int], seed: int = 9) -> Tensor:
    pixels = learner.backbone.read(pictures(kinds, seed))
    return torch.stack([*pixels]).to(learner.backbone.dtype) / 255


def slow_contrast(a: list[Tensor], b: list[Tensor], a_rows: list[int], b_rows: list[int]) -> float:
    total = 0.0
    for one, row in zip(a, a_rows, strict=True):
        scores = [math.exp(float(one @ other) / 0.07) for other in b]
        total -= sum(math.log(score / sum(scores)) for score, other in zip(scores, b_rows, strict=True) if row == other)
    return total / max(1, len(a) * len(b))


def slow_group_contrast(projected: Tensor, rows: list[int], unsure: list[bool]) -> float:
    def group(places: list[int]) -> tuple[list[Tensor], list[int]]:
        return [projected[place] for place in places], [rows[place] for place in places]

    count = len(unsure)
    high, low = ([i for i in range(count) if unsure[i] is wanted] for wanted in (True, False))
    new, stored = list(range(count)), list(range(count, len(rows)))
    total = 0.0
    for first, second in ((high, low), (low, high), (new, stored), (stored, new)):
        (a, a_rows), (b, b_rows) = group(first), group(second)
        total += slow_contrast(a, b, a_rows, b_rows)
    return total


@pytest.mark.parametrize("stored", [0, 3])
@pytest.mark.parametrize("unsure", [[True, False, True, False], [False] * 4])
def test_four_contrasts_are_summed_and_those_with_an_empty_side_are_zero(stored: int, unsure: list[bool]) -> None:
    generator = torch.Generator().manual_seed(0)
    projected = unit(torch.randn(4 + stored, 3, dtype=torch.float64, generator=generator))
    rows = [0, 0, 1, 1, 1, 0, 2][: 4 + stored]
    found = group_contrast(projected, torch.tensor(rows), torch.tensor(unsure))
    assert float(found) == pytest.approx(slow_group_contrast(projected, rows, unsure), abs=1e-9)


def test_the_total_is_the_sum_of_its_terms_as_written(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    teach(learner, 0, 3)
    images, rows = as_inputs(learner, [0, 1, 1, 0]), torch.tensor([0, 1, 1, 0])
    with torch.no_grad():
        drawn = learner.draw(rows)
        before = {name: tensor.clone() for name, tensor in learner.running().items()}

        entropy = [float(-(p * p.log()).sum()) for p in learner.logits(learner.features(images, "eval")).softmax(1)]
        middle = sorted(entropy)[1]
        together = torch.cat([images, learner.memory.images[drawn["slots"]].double() / 255])
        classes = [*rows.tolist(), *learner.memory.places.rows[drawn["slots"]].tolist()]
        viewed = learner.logits(learner.features(apply_views(FULL, together, drawn["views"]), "batch"))
        features = learner.features(together, "batch")
        clean = learner.logits(features)
        projected = F.normalize(learner.extras["projector"](features))
        expected = 0.0
        for i, row in enumerate(classes):
            p, q = (viewed[i] / 4).softmax(0), (clean[i] / 4).softmax(0)
            divergence = sum(float(p[c] * (p[c] / q[c]).log()) for c in range(len(p)))
            said = float(viewed[i].softmax(0)[row].log() + clean[i].softmax(0)[row].log())
            expected += (16 * divergence - said) / len(classes)
        expected += 0.5 * slow_group_contrast(projected, classes, [value > middle for value in entropy])

        assert all(torch.equal(tensor, before[name]) for name, tensor in learner.running().items())
        values, payload = learner.losses(images, rows, drawn)
        assert float(values["total"]) == pytest.approx(expected, rel=1e-9)
        assert payload["entropy"].tolist() == pytest.approx(entropy)


def test_running_statistics_move_by_the_views_and_then_by_the_images_as_they_are(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    teach(learner, 0, 2)
    twin, random = learner.clone(), learner.random.get_state()
    kinds = [1, 0, 1, 0]
    drawn = twin.draw(torch.tensor([1, 0, 1, 0]))
    with torch.no_grad():
        together = torch.cat([as_inputs(twin, kinds), twin.recalled(drawn["slots"])])
        twin.features(apply_views(FULL, together, drawn["views"]))
        twin.features(together)
    assert torch.equal(random, learner.random.get_state())
    learner.learn(pictures(kinds, 9), kinds)
    expected = twin.running()
    for name, tensor in learner.running().items():
        assert torch.allclose(tensor, expected[name], atol=1e-12), name


def test_one_step_trains_network_head_and_projector(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    teach(learner, 0, 1)
    before = tensors(learner)
    teach(learner, 1, 1)
    moved = changed(before, tensors(learner))
    assert {name for name in before if name.startswith(("weights/", "heads/"))} <= moved


def test_a_detached_teacher_changes_the_step_but_not_the_loss(small_resnet: ResNet) -> None:
    learnt = [make(small_resnet, detach_clean=detached) for detached in (False, True)]
    for learner in learnt:
        learner.learn(pictures([0, 1]), [0, 1])
    assert learnt[0].report() == learnt[1].report()
    assert not torch.equal(*(learner.network.trained()["conv.weight"] for learner in learnt))


@pytest.mark.parametrize("seed", range(3))
def test_the_memory_stores_what_a_loop_on_the_host_stores(small_resnet: ResNet, seed: int, monkeypatch: Any) -> None:
    learner, plans = make(small_resnet, seed=seed), []
    plan = learner.memory.plan

    def recorded(rows: Any, random: torch.Generator) -> Insertion:
        plans.append(plan(rows, random))
        return plans[-1]

    monkeypatch.setattr(learner.memory, "plan", recorded)
    stored: list[tuple[bytes, int, float] | None] = [None] * 6
    for step in range(7):
        kinds = [(step + i) % 2 for i in range(6)]
        # As if it were surer of what it stores: else each new sample would be the next to go.
        learner.memory.payload["entropy"] *= 0.5
        stored = [sample and (*sample[:2], sample[2] / 2) for sample in stored]
        if step:
            entropy = learner._entropy(as_inputs(learner, kinds, step)).tolist()
        given = pictures(kinds, step)
        learner.learn(given, kinds)
        if not step:  # new classes draw rows of the head: what was said of them then is in the payload
            entropy = learner.memory.payload["entropy"][:6].tolist()
        new = [
            (image.transpose(2, 0, 1).tobytes(), kind, h) for image, kind, h in zip(given, kinds, entropy, strict=True)
        ]
        for slot, sample in zip(plans[-1].named.tolist(), new, strict=True):
            lying = stored[slot] if slot < 6 else sample
            if lying is None:
                stored[slot] = sample
            elif slot < 6:
                surest = min((other for other in stored if other and other[1] == lying[1]), key=lambda other: other[2])
                stored[stored.index(surest)] = lying
                stored[slot] = sample
        memory = learner.memory
        lying_there = [
            (memory.images[slot].numpy().tobytes(), learner.classes[row], h)
            for slot, (row, h) in enumerate(
                zip(memory.places.rows.tolist(), memory.payload["entropy"][:6].tolist(), strict=True)
            )
            if row >= 0
        ]
        expected = sorted(sample for sample in stored if sample is not None)
        for found, wanted in zip(sorted(lying_there), expected, strict=True):
            assert found[:2] == wanted[:2]
            assert found[2] == pytest.approx(wanted[2])
    assert any(len(set(p.named.tolist()) - {6}) < int((p.named < 6).sum()) for p in plans), "no slot was named twice"


def test_entropies_are_taken_anew_when_a_task_begins_and_move_no_statistics(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    learner.predict_batch = 4  # six samples: the last batch is not full
    learner.boundary([0, 1])
    teach(learner, 0, 4)
    before = tensors(learner)
    learner.boundary([2, 3])
    assert changed(before, tensors(learner)) == {
        "memory/entropy",
        "learnt",
        *(name for name in before if name.startswith("heads/")),
    }
    fresh = make(small_resnet)
    fresh.load_state(before, {"classes": [0, 1], "method": learner.state()[1]["method"]})
    one_by_one = [float(fresh._entropy(fresh.recalled(torch.tensor([slot])))) for slot in range(6)]
    assert tensors(learner)["memory/entropy"].tolist() == pytest.approx(one_by_one)


def test_the_projector_and_the_entropies_are_counted(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    teach(learner, 0, 2)
    trunk, heads = sum(p.numel() for p in learner.network.trained().values()), 2 * (small_resnet.width + 1)
    assert learner.footprint().trained_now.count == trunk + heads + 5 * small_resnet.width + 5
    assert learner.footprint().samples_stored.bytes == 6 * (3 * 16 * 16 + 8)
