"""Steps of MOS and EASE hold nothing that a GPU could not record, as far as a CPU can tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_streams import pictures

import prol
from methods.device_reads import NothingRead
from prol.backbones import ViT
from prol.methods.adapters.ease import EASE
from prol.methods.adapters.mos import MOS


@pytest.mark.parametrize(
    ("method", "options"),
    [("mos", {}), ("mos", {"covariance": "full", "clip": 1.0}), ("ease", {}), ("ease", {"clip": 1.0, "mask": "batch"})],
)
def test_nothing_is_read_and_nothing_is_chosen_by_a_mask(tiny: ViT, method: str, options: dict[str, Any]) -> None:
    learner = prol.create(method, tiny, bottleneck=4, **options)
    assert isinstance(learner, MOS | EASE)
    for kinds in ([0, 1], [2, 3]):
        learner.boundary(kinds)
        learner.learn(pictures([*kinds, 0]), [*kinds, 0])
        layout, staged = learner.layout(), learner.staged(tiny.read(pictures([*kinds, 0, 0])))()
        rows = torch.tensor([learner.row_of[kind] for kind in [*kinds, 0, 0]])
        with NothingRead():
            learner.one_step(*learner.look_ahead(*staged).values(), rows)
        assert learner.layout() == layout
