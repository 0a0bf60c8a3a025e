"""Training steps have no operation that a GPU could not record, as far as a CPU can tell."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import prol
from methods.small_streams import pictures
from prol.backbones import ResNet, ViT
from prol.methods.gradient import GradientLearner
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


STEPS: list[tuple[str, dict[str, Any]]] = [
    ("mos", {"bottleneck": 4}),
    ("mos", {"bottleneck": 4, "covariance": "full", "clip": 1.0}),
    ("ease", {"bottleneck": 4}),
    ("ease", {"bottleneck": 4, "clip": 1.0, "mask": "batch"}),
    ("prol", {"blocks": 3}),
    ("prol", {"blocks": 3, "clip": 1.0, "thaw_heads": True}),
    ("prol", {"blocks": 3, "head": "growing", "ablation": "ft_inter"}),
    ("l2p", {"train_selection": "batch_vote"}),
    ("dualprompt", {"e_blocks": 2}),
    ("coda_prompt", {"blocks": 3, "orthogonality": 0.1}),
    ("convprompt", {"blocks": 3, "mask": "batch"}),
]


@pytest.mark.parametrize(("method", "options"), STEPS)
def test_nothing_is_read_and_nothing_is_chosen_by_a_mask(tiny: ViT, method: str, options: dict[str, Any]) -> None:
    learner = prol.create(method, tiny, **options)
    assert isinstance(learner, GradientLearner)
    for kinds in ([0, 1], [2, 3]):
        learner.boundary(kinds)
        for _ in range(2):  # moments are laid out in the first step
            learner.learn(pictures([*kinds, 0, 0]), [*kinds, 0, 0])
        layout, staged = learner.layout(), learner.staged(tiny.read(pictures([*kinds, 0, 0])))()
        rows = torch.tensor([learner.row_of[kind] for kind in [*kinds, 0, 0]])
        with NothingRead():
            learner.one_step(*learner.look_ahead(*staged).values(), rows)
        assert learner.layout() == layout


@pytest.mark.parametrize("options", [{}, {"head": "growing"}, {"thaw_heads": True}], ids=str)
def test_classes_and_tasks_that_arrive_within_the_room_leave_prols_step_as_it_is(
    tiny: ViT, options: dict[str, Any]
) -> None:
    learner = prol.create("prol", tiny, blocks=3, **options)
    assert isinstance(learner, GradientLearner)
    layouts = []
    for task in range(4):
        kinds = [3 * task, 3 * task + 1]
        learner.boundary(kinds)
        learner.learn(pictures([*kinds, kinds[0]]), [*kinds, kinds[0]])
        layouts.append(learner.layout())
        learner.learn(pictures([3 * task + 2] * 3), [3 * task + 2] * 3)
        layouts.append(learner.layout())
    assert len(set(layouts[2:])) == 1
    assert layouts[0] != layouts[2]


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
        drawn = learner.draw(rows) | learner.planned(learner.memory.plan(rows.tolist(), learner.random))
        learner.names = tuple(drawn)
        layout, staged = learner.layout(), learner.staged(pixels, drawn)
        with NothingRead():
            learner.one_step(*learner.look_ahead(*staged).values(), rows)
        assert learner.layout() == layout
