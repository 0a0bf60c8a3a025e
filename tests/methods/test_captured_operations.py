"""Steps of MOS, EASE and methods with a memory hold nothing that a GPU could not record, as far as a CPU can tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import prol
from methods.small_streams import pictures
from prol.backbones import ResNet, ViT
from prol.methods.adapters.ease import EASE
from prol.methods.adapters.mos import MOS
from prol.methods.replay.learner import ReplayLearner

READS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "lift_fresh", "bincount"}
"""Operations whose result or shape the host must wait for, or that take their values from it."""


class NothingRead(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        assert name not in READS, name
        if name in ("index", "index_put_", "_index_put_impl_"):
            assert all(index is None or index.dtype != torch.bool for index in args[1]), "selected by a mask"
        return func(*args, **(kwargs or {}))


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
        layout, staged = learner._layout(), learner._staged(tiny.read(pictures([*kinds, 0, 0])))()
        rows = torch.tensor([learner.row_of[kind] for kind in [*kinds, 0, 0]])
        with NothingRead():
            learner._one_step(*learner._see(*staged).values(), rows)
        assert learner._layout() == layout


@pytest.mark.parametrize(
    ("method", "options"),
    [("esrm", {}), ("esrm", {"detach_clean": True}), ("gsa", {"current": 3})],
)
def test_a_step_on_a_memory_reads_nothing_either(small_resnet: ResNet, method: str, options: dict[str, Any]) -> None:
    learner = prol.create(method, small_resnet, memory=5, replay=4, **options)
    assert isinstance(learner, ReplayLearner)
    for kinds in ([0, 1], [2, 3]):
        learner.boundary(kinds)
        learner.learn(pictures([*kinds, 0]), [*kinds, 0])
        pixels, rows = small_resnet.read(pictures([*kinds, 0, 0])), torch.tensor([*kinds, 0, 0])
        drawn = learner._draw(rows) | learner._planned(learner.memory.plan(rows.tolist(), learner.random))
        learner._names = tuple(drawn)
        layout, staged = learner._layout(), learner._staged_with(pixels, drawn, None)
        with NothingRead():
            learner._one_step(*learner._see(*staged).values(), rows)
        assert learner._layout() == layout
