"""What all replay methods share: steps that fail or read nothing, small memories, checks, runs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import prol
from methods import every_method
from methods.device_reads import NothingRead
from methods.small_streams import pictures
from prol import registry
from prol.backbones import ResNet
from prol.methods.replay.learner import ReplayLearner, flattened, restore_unless
from prol.runs import Plan, start
from prol.testing.learner_checks import CHECKS
from prol.testing.stream import difference

METHODS = {name: made for name, made in every_method.METHODS.items() if registry.method(name).from_scratch}
STEPPED = [name for name in METHODS if name != "gdumb"]


def make(method: str, backbone: ResNet, **options: Any) -> ReplayLearner:
    learner = prol.create(method, backbone, **METHODS[method][1] | options)
    assert isinstance(learner, ReplayLearner)
    return learner


FAST = ("er",)


@pytest.mark.parametrize("method", [pytest.param(m, marks=() if m in FAST else pytest.mark.slow) for m in METHODS])
def test_every_method_passes_the_checks_of_a_learner(method: str) -> None:
    one = {"rotations": 1} if method in ("ocm", "onpro") else {}
    small = {"memory": 7, "epochs": 1} if method == "gdumb" else {"memory": 6, "replay": 3}
    learner = prol.create(method, ResNet(2, size=8, precision="float64"), **METHODS[method][1] | small | one)
    results = prol.check_learner(learner)
    assert {r.name for r in results if r.outcome == "passed"} == set(CHECKS) - {"nothing_outlives_its_step"}


@pytest.mark.parametrize("method", STEPPED)
def test_single_images_and_a_memory_of_one_will_do(small_resnet: ResNet, method: str) -> None:
    learner = make(method, small_resnet, memory=1, replay=3)
    for step, kinds in enumerate([[0], [0], [1], [2, 0, 1]]):
        if step == 2:
            learner.boundary()
        learner.learn(pictures(kinds, step), kinds)
        assert np.isfinite(learner.report()["total"])
    assert len(learner.memory) == 1
    assert learner.memory.places.seen == 6
    assert not learner.predict(pictures([0, 1])).isnan().any()


@pytest.mark.parametrize("chunk", ["known classes", "an unseen class", "a class that begins a task"])
@pytest.mark.parametrize("method", STEPPED)
def test_a_loss_that_is_not_finite_changes_nothing_at_all(small_resnet: ResNet, method: str, chunk: str) -> None:
    rule = {"task_min_classes": 1, "task_min_steps": 1} if chunk == "a class that begins a task" else {}
    learner = make(method, small_resnet, memory=5, replay=3, **rule)
    for step in range(3):
        learner.learn(pictures([0, 1, 2], step), [0, 1, 2])
    learner.learn(pictures([2, 3], 3), [2, 3])
    trunk = learner.network.model.stages[1][0].conv1.weight  # type: ignore[index,union-attr]
    intact = trunk.detach().clone()
    with torch.no_grad():
        trunk[0, 0, 0, 0] = torch.inf
    before, last = learner.state(), dict(learner.report())
    kinds = [0, 1] if chunk == "known classes" else [0, 7, 8]
    with pytest.raises(ValueError, match="not finite"):
        learner.learn(pictures(kinds, 5), kinds)
    assert difference(before, learner.state()) == ""
    assert dict(learner.report()) == last
    assert learner.classes == [0, 1, 2, 3]
    assert learner.memory.rows.tolist()[:-1] == learner.memory.places.rows.tolist()
    with torch.no_grad():
        trunk.copy_(intact)
    learner.learn(pictures(kinds, 5), kinds)  # and resumes
    assert learner.memory.places.seen == 11 + len(kinds)
    assert learner.clock.number == (2 if rule else 0)


@pytest.mark.parametrize(("method", "options"), [*((name, {}) for name in STEPPED), ("esrm", {"detach_clean": True})])
def test_a_step_reads_nothing_from_the_device(small_resnet: ResNet, method: str, options: dict[str, Any]) -> None:
    learner = make(method, small_resnet, memory=8, **options)
    for kinds in ([0, 1], [2, 3]):
        learner.boundary(kinds)
        for step in range(2):
            learner.learn(pictures([*kinds, 0], step), [*kinds, 0])
        pixels, rows = small_resnet.read(pictures([*kinds, 0, 0])), torch.tensor([*kinds, 0, 0])
        drawn = learner.draw(rows) | learner.planned(learner.memory.plan(rows.tolist(), learner.random))
        learner.names = tuple(drawn)
        layout, staged = learner.layout(), learner.staged(pixels, drawn)
        with NothingRead():
            learner.one_step(*learner.look_ahead(*staged).values(), rows)
        assert learner.layout() == layout


@pytest.mark.parametrize(
    ("method", "option", "value"),
    [
        ("er", "memory", 0),
        ("er", "replay", 0),
        ("er", "lr", -1.0),
        ("er", "weight_decay", math.inf),
        ("er", "task_min_steps", 0),
        ("gdumb", "epochs", 0),
        ("gdumb", "lr", math.inf),
        ("mose", "current", -1),
        ("mose", "temperature", 0.0),
        ("mose", "distil", -1.0),
        ("gsa", "current", 0),
        ("esrm", "projection", 0),
        ("esrm", "contrast", -1.0),
        ("ocm", "rotations", 0),
        ("ocm", "rotations", 17),
        ("ocm", "temperature", 0.0),
        ("ocm", "projection", 0),
        ("ocm", "per_class", 0),
        ("ocm", "later_scale", 0.0),
        ("onpro", "close_pairs", -1),
        ("onpro", "mix_chance", 1.5),
        ("onpro", "close_beta", 0.0),
        ("onpro", "scale", 0.0),
    ],
)
def test_options_out_of_range_are_refused(method: str, option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{option} must be .*, got {value}"):
        registry.method(method).read_options({option: value})


def small_plan(method: str, protocol: str) -> Plan:
    options = {"memory": 12, "replay": 4} | ({"rotations": 2} if method == "ocm" else {})
    return Plan(
        *(method, "digits", options),
        backbone="resnet18_cifar@4",
        device="cpu",
        protocol=protocol,
        tasks=2,
        limit_per_class=3,
        threads=1,
    )


def result_of(plan: Plan, folder: Path) -> dict:
    start(plan, folder / "run")
    return json.loads((folder / "run" / "result.json").read_text())


OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("blurry", "iblurry", "siblurry", "imbalanced")]


@pytest.mark.parametrize("protocol", ["disjoint", "gradual", *OTHERS])
def test_it_runs_on_every_stream_and_its_result_says_what_is_stored(tmp_path: Path, protocol: str) -> None:
    result = result_of(small_plan("er", protocol), tmp_path)
    told = result["told"]
    assert (told["samples_stored"], told["sample_bytes_stored"]) == (12, 12 * 3 * 32 * 32)
    assert result["footprint"]["samples_stored"] == {"count": 12, "bytes": 12 * 3 * 32 * 32}
    assert told["tasks_found_by_rule"] is False
    assert told["weights"] == "resnet18_cifar@4"


@pytest.mark.parametrize(("protocol", "by_rule"), [("disjoint", False), ("gradual", True)])
def test_a_method_that_needs_tasks_says_where_it_found_them_by_a_rule(
    tmp_path: Path, protocol: str, by_rule: bool
) -> None:
    told = result_of(small_plan("ocm", protocol), tmp_path)["told"]
    assert told["tasks_found_by_rule"] is by_rule
    assert told["task_boundaries"] is not by_rule


def some() -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    return {
        "mean": torch.randn(4, generator=random),
        "table": torch.randn(2, 3, generator=random),
        "number": torch.randn((), generator=random),
    }


def test_running_statistics_are_copied_end_to_end() -> None:
    running = some()
    before = flattened(running)
    assert before.tolist() == [
        *running["mean"].tolist(),
        *running["table"].flatten().tolist(),
        float(running["number"]),
    ]
    running["mean"].zero_()
    assert before[0] != 0


def test_a_valid_step_stores_what_it_made() -> None:
    running = some()
    before = flattened(running)
    for tensor in running.values():
        tensor += 1
    moved = {name: tensor.clone() for name, tensor in running.items()}
    restore_unless(torch.tensor(True), running, before)
    assert all(torch.equal(tensor, moved[name]) for name, tensor in running.items())


def test_a_bad_step_is_taken_back_to_the_bit_in_place_even_from_nan() -> None:
    running = some()
    places = [tensor.data_ptr() for tensor in running.values()]
    before = flattened(running)
    for tensor in running.values():
        tensor.fill_(torch.nan)
    restore_unless(torch.tensor(False), running, before)
    assert all(torch.equal(tensor, some()[name]) for name, tensor in running.items())
    assert [tensor.data_ptr() for tensor in running.values()] == places


def test_norms_of_torch_go_back_and_on() -> None:
    norm = nn.BatchNorm1d(3)
    running = {"mean": norm.running_mean, "variance": norm.running_var}
    batch = torch.randn(8, 3, generator=torch.Generator().manual_seed(1))
    norm(batch)
    once = flattened(running)
    norm(torch.full((8, 3), torch.inf))
    restore_unless(torch.tensor(False), running, once)
    assert torch.equal(flattened(running), once)
    norm(batch)
    twin = nn.BatchNorm1d(3)
    twin(batch), twin(batch)
    assert torch.equal(flattened(running), flattened({"mean": twin.running_mean, "variance": twin.running_var}))
