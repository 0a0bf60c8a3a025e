"""DER++: stored logits, and whole steps against a plain torch program."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_replay import STREAM, PlainReplay, as_tensors, images_of, make, require_alike, upcoming_draw
from torch import Tensor

from prol.backbones import ResNet
from prol.methods.replay.derpp import DERPP, logit_distance
from prol.methods.replay.views import PARTIAL, apply_views


def random_tensor(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(known=st.lists(st.integers(1, 5), min_size=1, max_size=6), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_only_classes_known_then_are_targets(known: list[int], seed: int) -> None:
    logits, stored = (
        random_tensor(len(known), 5, seed=seed).requires_grad_(),
        random_tensor(len(known), 5, seed=seed + 1),
    )
    squares = [
        float((logits[i, c] - stored[i, c]).detach() ** 2) for i, classes in enumerate(known) for c in range(classes)
    ]
    loss = logit_distance(logits, stored, torch.tensor(known))
    assert float(loss.detach()) == pytest.approx(sum(squares) / len(squares), abs=1e-10)
    (gradient,) = torch.autograd.grad(loss, logits)
    for i, classes in enumerate(known):
        assert not gradient[i, classes:].any()
        assert bool((gradient[i, :classes] != 0).all())
    if set(known) == {5}:  # as it is written down: a mean over all logits
        torch.testing.assert_close(loss, F.mse_loss(logits, stored))


@pytest.mark.parametrize("weights", [(0.2, 1.0), (0.3, 0.5)], ids=str)
def test_steps_are_those_of_a_plain_program(small_resnet: ResNet, weights: tuple[float, float]) -> None:
    alpha, beta = weights
    learner = make("derpp", small_resnet, alpha=alpha, beta=beta)
    plain = PlainReplay(learner)
    for step, labels in enumerate(STREAM):
        images_given = images_of(labels, step)
        images, rows = as_tensors(learner, labels, images_given)
        drawn, slots = upcoming_draw(learner, labels)
        logits = plain.logits(apply_views(PARTIAL, images, drawn["views"]))
        loss = F.cross_entropy(logits, rows)
        if step:
            first, _ = plain.recalled(drawn["logit_slots"])
            then = torch.stack([plain.stored[slot].logits for slot in drawn["logit_slots"].tolist()])
            loss = loss + alpha * F.mse_loss(plain.logits(apply_views(PARTIAL, first, drawn["logit_views"])), then)
            second, labels_then = plain.recalled(drawn["label_slots"])
            again = plain.logits(apply_views(PARTIAL, second, drawn["label_views"]))
            loss = loss + beta * F.cross_entropy(again, labels_then)
        # What is stored is what the network in training said of the view, before this step moved it.
        plain.keep(slots, images, rows, logits)
        plain.stored.pop(learner.memory.capacity, None)
        plain.go_down(loss)
        learner.learn(images_given, labels)
        assert learner.report()["total"] == pytest.approx(float(loss.detach()), abs=1e-8)
        require_alike(learner, plain)
        for slot, one in plain.stored.items():
            found = learner.memory.payload["logits"][slot, : len(learner.classes)]
            torch.testing.assert_close(found, one.logits, rtol=0, atol=1e-8)
    assert DERPP.Options().alpha == 0.2
    assert DERPP.Options().beta == 1.0


def test_both_draws_are_independent(small_resnet: ResNet) -> None:
    learner = make("derpp", small_resnet, memory=20, replay=3)
    for step in range(6):
        learner.learn(images_of(["e", "b", "a"], step), ["e", "b", "a"])
    pairs = []
    for _ in range(12):
        drawn = learner.draw(torch.tensor([0]))
        pairs.append((drawn["logit_slots"].tolist(), drawn["label_slots"].tolist()))
        assert not torch.equal(drawn["logit_views"], drawn["label_views"])
    assert all(len(set(one)) == len(set(other)) == 3 for one, other in pairs)
    assert sum(set(one) != set(other) for one, other in pairs) > 6


def test_stored_logits_are_never_refreshed_and_know_how_many_classes_there_were(small_resnet: ResNet) -> None:
    learner = make("derpp", small_resnet, announced=["e", "b"], memory=20)
    learner.learn(images_of(["e", "b"], 0), ["e", "b"])
    first = learner.memory.payload["logits"][:2, :2].clone()
    assert bool((first != 0).all())
    for step, labels in enumerate((["a"], ["c", "d"], ["e"], ["f", "a"])):
        learner.learn(images_of(labels, step), labels)
        stored = learner.memory.payload
        assert torch.equal(stored["logits"][:2, :2], first)
        assert not stored["logits"][:2, 2:].any()
    assert learner.memory.payload["known"][:8].tolist() == [2, 2, 3, 5, 5, 5, 6, 6]
    saved = learner.state()[0]["memory/logits"]
    assert saved.shape == (20, 6)


def test_its_bytes_are_those_of_images_and_logits(small_resnet: ResNet) -> None:
    learner = make("derpp", small_resnet)
    learner.learn(images_of(["e", "b"], 0), ["e", "b"])
    stored = learner.footprint().samples_stored
    assert (stored.count, stored.bytes) == (2, 2 * (3 * 16 * 16 + 4 * 8 + 8))
