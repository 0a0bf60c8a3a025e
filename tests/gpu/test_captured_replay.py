"""Steps of methods that keep samples, captured as graphs, do what steps one by one do. Needs a GPU."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from test_captured_steps import chunks

import prol
from prol import registry
from prol.backbones import ResNet
from prol.backbones.base import Acceleration
from prol.learner import Learner

pytestmark = pytest.mark.gpu

OPTIONS: dict[str, dict[str, Any]] = {"ocm": {"rotations": 4}, "onpro": {"rotations": 4}}
STEPPING = [name for name in registry.names("methods") if registry.method(name).from_scratch and name != "gdumb"]


def make(method: str, captured: bool) -> Learner:
    network = ResNet(8, device=torch.device("cuda"))
    network.acceleration = Acceleration(captured=captured)
    return prol.create(method, network, memory=100, replay=16, lr=1e-4, **OPTIONS.get(method, {}))


def teach(one: Learner) -> list[dict[str, float]]:
    reports = []
    for task, (first, end) in enumerate(pairwise((0, 5, 10))):
        one.boundary(list(range(first, end)))
        for images, labels in chunks(12, list(range(first, end)), task):
            one.learn(images, labels)
            reports.append(dict(one.report()))
    return reports


@pytest.mark.parametrize("method", STEPPING)
def test_captured_steps_are_those_one_by_one(method: str) -> None:
    eager, captured = make(method, False), make(method, True)
    for one, other in zip(teach(eager), teach(captured), strict=True):
        assert other == pytest.approx(one, rel=2e-2, abs=2e-2)
    recordings = captured.take_step._function._recordings.values()
    assert any(recording.graph is not None for recording in recordings)
    kept, captured_kept = (one.state()[0] for one in (eager, captured))
    # ESRM evicts by entropy, which may differ in its last bits: which image of a class goes may too.
    for name in ("memory/rows", "learnt", *(() if method == "esrm" else ("memory/images",))):
        assert torch.equal(kept[name], captured_kept[name])
