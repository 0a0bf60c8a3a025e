"""Chunks that PROL+ refuses, steps that it undoes, and near copies: what was learnt before is not lost."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden_files import tiny_vit
from methods.prol_plus.small_prol_plus import CLASSES, blocks_of, learn, make
from methods.small_streams import pictures
from prol.backbones import ViT, evaluation_input
from prol.methods.closed_form.first_task import FirstTask
from prol.methods.prol_plus.features import PROLPlusOptions, Widths, plan
from prol.methods.prol_plus.learner import PROLPlus
from prol.methods.prol_plus.tuning import FirstBlocks
from prol.state import State
from prol.testing.stream import difference, same_bits

TEST = pictures(list(range(6)), seed=7)


def widths(vit: ViT, blocks: int) -> Widths:
    return plan(PROLPlusOptions(blocks=blocks), vit.tap_widths, vit.width)


@pytest.mark.parametrize("adapt_steps", [100, 2])
@pytest.mark.parametrize("std", [1e-14, 1e-40, 1e-60])
def test_features_that_are_huge_before_a_step_are_the_backbones_fault_and_nothing_is_lost(
    tiny: ViT, adapt_steps: int, std: float
) -> None:
    """Though the loss is finite, since the last LayerNorm brings any features to one length."""
    learner = learn(make(tiny, adapt_steps=adapt_steps), 3)
    before, how = learner.state(), learner.preprocessing
    learner.preprocessing = replace(how, std=(std, std, std))
    with pytest.raises(ValueError, match="which is not learnt: look at its weights and precision"):
        learner.learn(pictures(CLASSES), CLASSES)
    learner.preprocessing = how
    assert difference(before, learner.state()) == ""


RUINED = r"step {} of tuning, at the rate \S+, ruins .*: it is undone and the chunk not learnt; lower adapt_lr=$"


@pytest.mark.parametrize(("dtype", "rate"), [(torch.float32, 1e30), (torch.float32, 1e100), (torch.float64, 1e100)])
def test_a_diverging_rate_refuses_its_chunk(dtype: torch.dtype, rate: float) -> None:
    """Also where new classes came with it: they are gone again, and not one tensor has changed."""
    learner = make(tiny_vit(dtype), adapt_lr=rate)
    with pytest.raises(ValueError, match=RUINED.format(r"\d")):  # noqa: PT012
        for step in range(10):
            before: Any = learner.state()
            learner.learn(pictures([0, step], seed=step), [0, step])
    assert difference(before, learner.state()) == ""


def inputs_of(vit: ViT, images: Any) -> Tensor:
    return evaluation_input(vit.read(images), vit.preprocessing, vit.device, vit.dtype)


@torch.no_grad()
def test_a_step_is_looked_at_before_and_after(tiny: ViT) -> None:
    """The features before it are those of the network as it was, in single precision."""
    states = State(), State()
    tuning, plain = FirstBlocks(states[0], tiny, 0.05, widths(tiny, 2)), FirstTask(states[1], tiny, 0.05)
    rows = torch.tensor([0, 1, 2, 0, 1, 2])
    for state in states:
        state.add_classes(3)
    for step in range(3):
        images = pictures(CLASSES, seed=step)
        expected = blocks_of(tuning.network, images, 2)
        before, after, loss = tuning.step_and_look(inputs_of(tiny, images), rows, step, 0.01)
        assert before.dtype == after.dtype == torch.float32
        torch.testing.assert_close(before, expected.float(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(after, blocks_of(tuning.network, images, 2).float(), rtol=1e-6, atol=1e-6)
        assert (after - before).abs().max() > 0.01 or step == 0
        assert loss == pytest.approx(plain.step(inputs_of(tiny, images), rows, step, 0.01)[1], rel=1e-9)


@torch.no_grad()
@pytest.mark.parametrize(
    ("steps", "rate"), [(0, torch.inf), (0, torch.nan), (2, torch.inf), (2, torch.nan), (2, 1e60), (2, 1e14)]
)
def test_a_step_that_ruins_the_features_is_undone_whole(tiny: ViT, steps: int, rate: float) -> None:
    """LayerNorms, head and Adam's moments, also where there were none of these yet."""
    state, rows = State(), torch.tensor([0, 1, 2, 0, 1, 2])
    tuning = FirstBlocks(state, tiny, 0.05, widths(tiny, 1))
    state.add_classes(3)
    inputs = inputs_of(tiny, pictures(CLASSES))
    for step in range(steps):
        tuning.step_and_look(inputs, rows, step, 0.01)
    before, values = state.snapshot()
    with pytest.raises(ValueError, match=RUINED.format(steps + 1)):
        tuning.step_and_look(inputs, rows, steps, rate)
    after, values_after = state.snapshot()
    assert (values, before.keys()) == (values_after, after.keys())
    assert all(same_bits(before[name], tensor) for name, tensor in after.items())
    assert all(norm.requires_grad for norm in tuning.network.trained().values())


@torch.no_grad()
def test_a_step_that_would_mend_the_features_is_undone_too(tiny: ViT, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those before it are what would be added up."""
    state, rows = State(), torch.tensor([0, 1, 2, 0, 1, 2])
    tuning = FirstBlocks(state, tiny, 0.05, widths(tiny, 1))
    state.add_classes(3)
    look, factors = tuning.look, iter([1e13, 1.0])

    def first_huge(inputs: Tensor) -> tuple[Tensor, Tensor]:
        features, read = look(inputs)
        return features, next(factors) * read

    monkeypatch.setattr(tuning, "look", first_huge)
    with pytest.raises(ValueError, match="look at its weights and precision"):
        tuning.step_and_look(inputs_of(tiny, pictures(CLASSES)), rows, 0, 0.01)
    assert tuning.adam.step == 0


def ruined(vit: ViT, adapt_steps: int, rate: float) -> PROLPlus:
    """Three steps, and one of known classes at a rate that is refused."""
    learner = learn(make(vit, adapt_steps=adapt_steps), 3)
    usual = learner.options
    learner.options = replace(usual, adapt_lr=rate)
    with pytest.raises(ValueError, match=RUINED.format(4)):
        learner.learn(pictures(CLASSES, seed=3), CLASSES)
    learner.options = usual
    return learner


@pytest.mark.parametrize("adapt_steps", [5, 100])
@pytest.mark.parametrize("rate", [1e14, 1e60, 1e200])
def test_after_a_step_that_ruins_the_features_learning_continues_as_if_it_had_not_been(
    tiny: ViT, adapt_steps: int, rate: float
) -> None:
    """Also where features are finite, but not in single precision, or too large for the sums that they would enter."""
    learner, twin = ruined(tiny, adapt_steps, rate), learn(make(tiny, adapt_steps=adapt_steps), 3)
    for step in (None, 4, 5, 6):
        if step is not None:
            for one in (learner, twin):
                learn(one, 1, first=step)
        assert difference(twin.state(), learner.state()) == ""
        assert torch.equal(learner.predict(TEST), twin.predict(TEST))
        assert learner.report() == twin.report()
    assert learner.tuning.over == (adapt_steps == 5)


SCENES = pictures([0, 3], seed=5)


def seen(scene: NDArray[np.uint8], noise: int, seed: int) -> NDArray[np.uint8]:
    """A scene as a camera sees it once more, each value off by at most so much."""
    off = np.random.default_rng(seed).integers(-noise, noise + 1, scene.shape)
    return (scene.astype(int) + off).clip(0, 255).astype(np.uint8)


SCENE_CASES = [(0, 0, 0), (0, 3, 10), (400, 1, 10)]
"""Steps of tuning, noise, and images of another class before: fast ones have each value."""
OTHER_CASES = [case for case in product([0, 400], [0, 1, 3], [0, 10]) if case not in SCENE_CASES]


@pytest.mark.parametrize(
    ("adapt_steps", "noise", "others"),
    [*SCENE_CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in OTHER_CASES)],
    ids=str,
)
def test_one_scene_for_long_is_learnt_and_predicted(tiny: ViT, adapt_steps: int, noise: int, others: int) -> None:
    """Of so many near copies rounding leaves no spread that could be solved for: that is no reason to stop."""
    learner = make(tiny, adapt_steps=adapt_steps)
    if others:
        learner.learn(pictures([1, 2, 4, 5] * 2 + [1, 2], seed=1), ["others"] * others)
    for step in range(60):
        learner.learn(np.stack([seen(SCENES[0], noise, 10 * step + place) for place in range(10)]), ["scene"] * 10)
    scores = learner.predict(np.stack([seen(SCENES[0], noise, 10**6)]))
    assert scores.isfinite().all()
    assert learner.classes[int(scores.argmax())] == "scene"


@pytest.mark.parametrize(
    ("chunk", "adapt_steps"),
    [(4, 0), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(1, 0), (1, 400), (4, 400)])],
)
def test_two_scenes_in_turns_are_distinguished(tiny: ViT, chunk: int, adapt_steps: int) -> None:
    learner = make(tiny, adapt_steps=adapt_steps)
    turns = np.concatenate([SCENES] * 2)
    for _ in range(700 // chunk):
        learner.learn(turns[:chunk], [0, 1, 0, 1][:chunk])
        if chunk == 1:
            learner.learn(turns[1:2], [1])
    assert learner.predict(SCENES).argmax(1).tolist() == [0, 1]
