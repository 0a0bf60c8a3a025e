"""ER and ER-ACE: whole steps against a plain torch program, passes and the mask."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_replay import CLASSES, STREAM, PlainReplay, as_tensors, images_of, make, require_alike, upcoming_draw
from torch import Tensor

from prol.backbones import ResNet
from prol.methods.replay.er import ER, asymmetric_cross_entropy
from prol.methods.replay.views import FULL, PARTIAL, apply_views


def test_steps_are_those_of_a_plain_program(small_resnet: ResNet) -> None:
    learner = make("er", small_resnet)
    plain = PlainReplay(learner)
    for step, labels in enumerate(STREAM):
        given = images_of(labels, step)
        images, rows = as_tensors(learner, labels, given)
        drawn, slots = upcoming_draw(learner, labels)
        recalled, stored_rows = plain.recalled(drawn["slots"])
        assert len(recalled) == min(4, len(plain.stored))  # none in the very first step, which is taken all the same
        logits = plain.logits(apply_views(FULL, torch.cat([images, recalled]), drawn["views"]))
        loss = F.cross_entropy(logits, torch.cat([rows, stored_rows]))
        plain.go_down(loss)
        plain.keep(slots, images, rows, logits[: len(rows)])
        plain.stored.pop(learner.memory.capacity, None)
        learner.learn(given, labels)
        assert learner.report()["total"] == pytest.approx(float(loss.detach()), abs=1e-8)
        require_alike(learner, plain)
    asked = images_of(["g", "a", "b"], 99)
    plain.network.eval()
    expected = plain.logits(as_tensors(learner, ["g", "a", "b"], asked)[0]).detach()
    torch.testing.assert_close(learner.predict(asked).double(), expected, rtol=1e-5, atol=1e-5)


def test_norms_see_chunk_and_memory_as_one_batch(small_resnet: ResNet) -> None:
    learner = make("er", small_resnet, lr=0.0)
    for step in range(3):
        learner.learn(images_of(["e", "b"], step), ["e", "b"])
    labels, given = ["a", "a", "g"], images_of(["a", "a", "g"], 9)
    drawn, _ = upcoming_draw(learner, labels)
    images, _ = as_tensors(learner, labels, given)
    together = torch.cat([images, learner.memory.images[drawn["slots"]].double() / 255])
    views = apply_views(FULL, together, drawn["views"])
    one, two = learner.clone().network, learner.clone().network
    one.features(views, "train")
    for half in (views[:3], views[3:]):
        two.features(half, "train")
    learner.learn(given, labels)
    now = learner.network.running()
    assert all(torch.allclose(now[name], buffer, rtol=0, atol=1e-12) for name, buffer in one.running().items())
    assert not any(torch.allclose(now[name], buffer, rtol=0, atol=1e-6) for name, buffer in two.running().items())


def test_images_are_stored_as_they_came_after_the_step(small_resnet: ResNet) -> None:
    learner = make("er", small_resnet, memory=20)
    given = images_of(["e", "b"], 0)
    drawn, _ = upcoming_draw(learner, ["e", "b"])
    assert drawn["slots"].tolist() == []  # the chunk is not drawn in its own step
    learner.learn(given, ["e", "b"])
    assert torch.equal(learner.memory.images[:2], torch.from_numpy(given).permute(0, 3, 1, 2))


def test_the_memory_grows_to_its_size_and_bytes_are_counted(small_resnet: ResNet) -> None:
    learner = make("er", small_resnet)
    assert isinstance(learner, ER)
    for step, labels in enumerate(STREAM):
        learner.learn(images_of(labels, step), labels)
        met = sum(map(len, STREAM[: step + 1]))
        stored = learner.footprint().samples_stored
        assert (stored.count, stored.bytes) == (min(6, met), min(6, met) * 3 * 16 * 16)
    assert learner.class_counts().tolist() == [2, 4, 6, 6]
    assert learner.class_counts().sum() == learner.memory.places.seen


def random_logits(count: int, classes: int, seed: int = 0) -> Tensor:
    return torch.randn(count, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def slow(logits: Tensor, rows: list[int], seen_before: set[int]) -> float:
    """Sample by sample: the softmax runs over classes of the chunk and those never seen before."""
    compete = [c for c in range(logits.shape[1]) if c in rows or c not in seen_before]
    total = 0.0
    for x, row in zip(logits.tolist(), rows, strict=True):
        total += math.log(sum(math.exp(x[c]) for c in compete)) - x[row]
    return total / len(rows)


def test_the_mask_by_example() -> None:
    """Of six classes 0, 2 and 5 were seen before; the chunk has 2 and 4: then 0 and 5 are out, and only they."""
    logits = random_logits(3, 6).requires_grad_()
    met = torch.tensor([True, False, True, False, False, True])
    loss = asymmetric_cross_entropy(logits, torch.tensor([4, 2, 4]), met)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert float(loss.detach()) == pytest.approx(slow(logits.detach(), [4, 2, 4], {0, 2, 5}), abs=1e-12)
    assert bool(gradient.isfinite().all())
    assert (gradient != 0).any(0).tolist() == [False, True, True, True, True, False]
    masked = logits.detach().clone()
    masked[:, [0, 5]] = -1e9
    assert float(loss.detach()) == pytest.approx(float(F.cross_entropy(masked, torch.tensor([4, 2, 4]))), abs=1e-12)


@given(
    rows=st.lists(st.integers(0, 6), min_size=1, max_size=8), seen=st.sets(st.integers(0, 6)), seed=st.integers(0, 99)
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_loss_is_that_of_a_loop(rows: list[int], seen: set[int], seed: int) -> None:
    logits, met = random_logits(len(rows), 7, seed), torch.tensor([c in seen for c in range(7)])
    found = float(asymmetric_cross_entropy(logits, torch.tensor(rows), met))
    assert found == pytest.approx(slow(logits, rows, seen), abs=1e-10)
    everyone = torch.ones(7, dtype=torch.bool)
    alone = float(asymmetric_cross_entropy(logits[:1], torch.tensor(rows[:1]), everyone))
    assert alone == pytest.approx(0, abs=1e-12)  # one class has nothing to compete with


def test_asymmetric_steps_are_those_of_a_plain_program(small_resnet: ResNet) -> None:
    """Classes are announced in one order and met in another; some are not met for long."""
    learner = make("er_ace", small_resnet)
    plain, seen = PlainReplay(learner), set()
    for step, labels in enumerate(STREAM):
        given_images = images_of(labels, step)
        images, rows = as_tensors(learner, labels, given_images)
        drawn, slots = upcoming_draw(learner, labels)
        recalled, stored_rows = plain.recalled(drawn["slots"])
        views = apply_views(PARTIAL, torch.cat([images, recalled]), drawn["views"])
        out = [CLASSES.index(label) for label in seen - set(labels)]
        logits = plain.logits(views[: len(rows)])
        masked = logits.index_fill(1, torch.tensor(out, dtype=torch.int64), -1e9)
        loss = F.cross_entropy(masked, rows)
        if step:
            loss = loss + F.cross_entropy(plain.logits(views[len(rows) :]), stored_rows)
        plain.go_down(loss)
        plain.keep(slots, images, rows, logits)
        plain.stored.pop(learner.memory.capacity, None)
        learner.learn(given_images, labels)
        seen |= set(labels)
        assert learner.report()["total"] == pytest.approx(float(loss.detach()), abs=1e-8)
        assert ("memory" in learner.report()) == bool(step)
        require_alike(learner, plain)


def test_an_old_class_that_is_absent_gets_no_gradient_from_the_chunk(small_resnet: ResNet) -> None:
    learner = make("er_ace", small_resnet)
    learner.learn(images_of(["e", "b"], 0), ["e", "b"])
    drawn, _ = upcoming_draw(learner, ["a", "b"])
    assert drawn["seen"].tolist() == [False, True, True, False]
    learner.live = [learner.heads[0].trained()]
    values, _ = learner.losses(*as_tensors(learner, ["a", "b"], images_of(["a", "b"], 1)), drawn)
    leaves = [part.leaf for part in learner.live[0].values()]
    for term, reached in (("chunk", [True, True, False, True]), ("memory", [True] * 4)):
        for gradient in torch.autograd.grad(values[term], leaves, retain_graph=True):
            assert (gradient != 0).view(4, -1).any(1).tolist() == reached
