"""Losses found not to be finite only later, as on a GPU: what the host knows of the memory is made true again."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch

import prol
from methods.every_method import METHODS
from methods.small_streams import pictures
from prol.backbones import ResNet
from prol.engine.step import Later, LossWatch
from prol.methods.replay.learner import ReplayLearner
from prol.testing.stream import difference

KINDS = [0, 1, 2]

REPLAY = [name for name, (_, options) in METHODS.items() if "replay" in options]


class LateWatch(LossWatch):
    """Hears of each step as late as on a GPU."""

    def note(self, numbers: Later, step: int, at_once: bool) -> None:
        del at_once
        super().note(numbers, step, at_once=False)


class Stream:
    """Teaches images that can be told apart, and remembers which of them a step was really taken on."""

    def __init__(self, method: str, network: ResNet, memory: int) -> None:
        options: dict[str, Any] = METHODS[method][1] | {"memory": memory}
        learner = prol.create(method, network, **options)
        assert isinstance(learner, ReplayLearner)
        self.learner, self.seed = learner, 0
        learner.calibration.next = 10**9  # a prediction before learning would find the loss at once
        learner.take_step._watch = LateWatch(0.1)
        self.label_of: dict[bytes, int] = {}
        self.learnt: Counter[int] = Counter()
        self.teach(KINDS)

    def teach(self, kinds: list[int], counts: bool = True) -> None:
        self.seed += 1
        images = pictures(kinds, self.seed)
        self.learner.learn(images, kinds)
        if counts:
            self.learnt.update(kinds)
            for image, kind in zip(images, kinds, strict=True):
                self.label_of[image.transpose(2, 0, 1).tobytes()] = kind

    def teach_badly(self, kinds: list[int]) -> None:
        """A step whose loss is not finite, which nobody notices yet."""
        bias = self.learner.heads[-1].bias.rows
        stored = bias.clone()
        bias.fill_(torch.inf)
        self.teach(kinds, counts=False)
        assert torch.isinf(bias).all()  # nothing was moved
        bias.copy_(stored)

    def require_true(self) -> None:
        """What the host says of the memory is so: every image was learnt, with that label; counts are those learnt."""
        memory, row_of = self.learner.memory, self.learner.row_of
        filled, met = len(memory), sum(self.learnt.values())
        assert memory.places.seen == int(memory.seen) == met
        assert filled <= min(memory.capacity, met)
        images = [image.numpy().tobytes() for image in memory.images[:filled]]
        assert len(set(images)) == filled
        assert [row_of[self.label_of[image]] for image in images] == memory.places.rows[:filled].tolist()
        assert memory.places.rows[filled:].tolist() == [-1] * (memory.capacity - filled)
        assert memory.rows[:-1].tolist() == memory.places.rows.tolist()
        assert not memory.images[filled:].any()
        assert self.learner.class_counts().tolist() == [self.learnt[kind] for kind in self.learner.classes]


@pytest.mark.parametrize("memory", [30, 5], ids=["room", "full"])
@pytest.mark.parametrize("method", REPLAY)
def test_a_bad_step_found_late_leaves_no_slot_without_its_image(small_resnet: ResNet, method: str, memory: int) -> None:
    stream = Stream(method, small_resnet, memory)
    stream.teach([0, 1])
    stream.teach_badly([2, 0, 1])
    stream.teach([1, 2, 2])  # still not told; it lands behind the hole
    with pytest.raises(ValueError, match="in an earlier chunk"):
        stream.teach([0, 0])
    stream.require_true()
    if memory == 30:
        assert len(stream.learner.memory) == 8
    for _ in range(3):
        stream.teach([0, 2])
    stream.learner.state()
    stream.require_true()


@pytest.mark.parametrize("method", ["er", "esrm"])
def test_it_is_the_same_when_it_is_told_by_reading_the_state(small_resnet: ResNet, method: str) -> None:
    stream = Stream(method, small_resnet, 7)
    stream.teach([0, 1, 1])
    stream.teach_badly([2, 0, 1])
    with pytest.raises(ValueError, match="not finite"):
        stream.learner.state()
    stream.require_true()
    twin = stream.learner.clone()
    for one in (stream.learner, twin):
        one.learn(pictures([1, 2], 77), [1, 2])
    assert difference(stream.learner.state(), twin.state()) == ""


def test_two_bad_steps_in_a_row_are_both_told_and_both_undone(small_resnet: ResNet) -> None:
    stream = Stream("er", small_resnet, 30)
    stream.teach([0, 1])
    stream.teach_badly([2, 0])
    stream.teach_badly([1])
    with pytest.raises(ValueError, match="in an earlier chunk"):
        stream.teach([0])
    stream.require_true()
    with pytest.raises(ValueError, match="in an earlier chunk"):
        stream.learner.predict(pictures([0]))
    stream.require_true()
    stream.teach([2, 1])
    stream.learner.predict(pictures([0]))
    stream.require_true()


def test_a_good_step_found_late_is_the_step_found_at_once(small_resnet: ResNet) -> None:
    late = Stream("derpp", small_resnet, 6)
    at_once = prol.create("derpp", small_resnet, **METHODS["derpp"][1] | {"memory": 6})
    at_once.calibration.next = late.learner.calibration.next
    at_once.learn(pictures(KINDS, 1), KINDS)
    for kinds in ([0, 1], [2, 2, 1], [0]):
        late.teach(kinds)
        at_once.learn(pictures(kinds, late.seed), kinds)
    assert difference(late.learner.state(), at_once.state()) == ""
    late.require_true()
