"""A step that fails takes the classes that came with it away again, at a cost that does not grow with the table."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import prol
from prol.backbones import ViT
from prol.learner import Learner
from prol.registry import method
from prol.testing.stream import STREAM, difference, teach

TRAINED = ["prol", "l2p", "dualprompt", "coda_prompt", "convprompt", "lae", "finetune", "head_only", "mos", "ease"]

IN_BLOCKS = ("prol", "lae", "coda_prompt", "convprompt")


def make(name: str, vit: ViT) -> Learner:
    blocks = {"e_blocks": 2} if name == "dualprompt" else {"blocks": 3} if name in IN_BLOCKS else {}
    return teach(prol.create(name, vit, **blocks), STREAM[:2])


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("boundary", [False, True], ids=["same task", "next task"])
def test_nothing_is_left_of_a_step_that_fails(name: str, boundary: bool, tiny: ViT) -> None:
    learner = make(name, tiny)
    if boundary:
        learner.boundary()
    before, how = learner.state(), learner.preprocessing
    images = np.random.default_rng(5).integers(0, 256, (4, 17, 19, 3), dtype=np.uint8)
    learner.preprocessing = replace(how, std=(0.0, 0.0, 0.0))  # every input, and so the loss, is not finite
    with pytest.raises(ValueError, match="not finite"):
        learner.learn(images, ["gnu", "hen", "gnu", "ant"])
    learner.preprocessing = how
    assert not difference(before, learner.state())
    assert learner.row_of == {name: row for row, name in enumerate(learner.classes)}
    learner.learn(images, ["gnu", "hen", "gnu", "ant"])
    assert learner.classes[-2:] == ["gnu", "hen"]


@pytest.mark.parametrize("name", TRAINED[:8])
def test_tables_that_only_grow_are_not_copied_beforehand(name: str, tiny: ViT) -> None:
    learner = make(name, tiny)
    count, kept, _ = learner._mark()
    assert count == len(learner.classes)
    assert {entry for entry, value in kept.items() if not isinstance(value, torch.Tensor)} == set(
        method(name).only_grow
    )
    assert all(value == count for value in kept.values() if not isinstance(value, torch.Tensor))
