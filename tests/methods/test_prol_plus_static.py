"""PROL+ where nothing happens: a camera that sees one scene for hours."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from small_prol_plus import make
from small_streams import pictures

from prol.backbones import ViT
from prol.methods.prol_plus.learner import learner as prol_plus

SCENES = pictures([0, 3], seed=5)


def seen(scene: NDArray[np.uint8], noise: int, seed: int) -> NDArray[np.uint8]:
    """A scene as a camera sees it once more, each value off by at most so much."""
    off = np.random.default_rng(seed).integers(-noise, noise + 1, scene.shape)
    return (scene.astype(int) + off).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("adapt_steps", [0, 400])
@pytest.mark.parametrize("noise", [0, 1, 3])
@pytest.mark.parametrize("others", [0, 10], ids=["at once", "after others"])
@pytest.mark.parametrize("own", [6, None], ids="own={}".format)
def test_one_scene_for_long_is_learnt_and_answered(
    tiny: ViT, adapt_steps: int, noise: int, others: int, own: int | None
) -> None:
    """Of so many near copies rounding leaves no spread that could be solved for: that is no reason to stop."""
    learner = make(tiny, adapt_steps=adapt_steps, own=own, budget_mb=4)
    if others:
        learner.learn(pictures([1, 2, 4, 5] * 2 + [1, 2], seed=1), ["others"] * others)
    for step in range(60):
        learner.learn(np.stack([seen(SCENES[0], noise, 10 * step + place) for place in range(10)]), ["scene"] * 10)
    scores = learner.predict(np.stack([seen(SCENES[0], noise, 10**6)]))
    assert scores.isfinite().all()
    assert learner.classes[int(scores.argmax())] == "scene"


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("adapt_steps", [0, 400])
def test_two_scenes_in_turns_are_told_apart(tiny: ViT, chunk: int, adapt_steps: int) -> None:
    learner = make(tiny, adapt_steps=adapt_steps)
    turns = np.concatenate([SCENES] * 2)
    for _ in range(700 // chunk):
        learner.learn(turns[:chunk], [0, 1, 0, 1][:chunk])
        if chunk == 1:
            learner.learn(turns[1:2], [1])
    assert learner.predict(SCENES).argmax(1).tolist() == [0, 1]


def test_a_chunk_is_not_refused_for_what_could_not_be_chosen(tiny: ViT, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken in by then: whoever tries again would have it counted twice."""

    def fails(*_: object) -> int:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(prol_plus, "choose_strength", fails)
    monkeypatch.setattr(prol_plus, "principal_directions", fails)
    learner = make(tiny)
    for step in range(60):
        learner.learn(pictures([0, 1, 2] * 2, seed=step), [0, 1, 2] * 2)
    assert learner.seen == 360
    assert learner.moments.counts.rows.tolist() == [120.0] * 3
    assert learner.predict(pictures([0, 1, 2], seed=99)).argmax(1).tolist() == [0, 1, 2]
