"""ER: whole steps against a plain torch program, one pass for both halves of the batch, and runs on every stream."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from plain_replay import STREAM, PlainReplay, as_tensors, foretold, images_of, make, require_alike
from test_captured_operations import NothingRead

import prol
from methods.small_streams import pictures
from prol.backbones import ResNet
from prol.methods.replay.er import ER
from prol.methods.replay.learner import ReplayLearner
from prol.methods.replay.views import FULL, apply_views
from prol.runs import Plan, start
from prol.testing.learner_checks import CHECKS
from prol.testing.stream import difference


def test_steps_are_those_of_a_plain_program(small_resnet: ResNet) -> None:
    learner = make("er", small_resnet)
    plain = PlainReplay(learner)
    for step, labels in enumerate(STREAM):
        given = images_of(labels, step)
        images, rows = as_tensors(learner, labels, given)
        drawn, slots = foretold(learner, labels)
        recalled, kept_rows = plain.recalled(drawn["slots"])
        assert len(recalled) == min(4, len(plain.kept))  # none in the very first step, which is taken all the same
        logits = plain.logits(apply_views(FULL, torch.cat([images, recalled]), drawn["views"]))
        loss = F.cross_entropy(logits, torch.cat([rows, kept_rows]))
        plain.go_down(loss)
        plain.keep(slots, images, rows, logits[: len(rows)])
        plain.kept.pop(learner.memory.capacity, None)
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
    drawn, _ = foretold(learner, labels)
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


def test_images_are_kept_as_they_came_after_the_step(small_resnet: ResNet) -> None:
    learner = make("er", small_resnet, memory=20)
    given = images_of(["e", "b"], 0)
    drawn, _ = foretold(learner, ["e", "b"])
    assert drawn["slots"].tolist() == []  # the chunk is not drawn in its own step
    learner.learn(given, ["e", "b"])
    assert torch.equal(learner.memory.images[:2], torch.from_numpy(given).permute(0, 3, 1, 2))


@pytest.mark.parametrize("method", ["er", "er_ace", "derpp"])
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (3, 1, 5)], ids=str)
def test_one_image_at_a_time_and_a_memory_of_one_will_do(
    small_resnet: ResNet, method: str, sizes: tuple[int, ...]
) -> None:
    learner = prol.create(method, small_resnet, memory=1, replay=3)
    assert isinstance(learner, ReplayLearner)
    for step, size in enumerate(sizes):
        kinds = [(step + i) % 3 for i in range(size)]
        learner.learn(pictures(kinds, step), kinds)
        assert np.isfinite(learner.report()["total"])
    assert len(learner.memory) == 1
    assert learner.memory.places.met == sum(sizes)
    assert bool(learner.predict(pictures([0, 1])).isfinite().all())


@pytest.mark.parametrize("method", ["er", "er_ace", "derpp"])
@pytest.mark.parametrize("with_new_class", [False, True])
def test_a_loss_that_is_not_finite_changes_nothing_at_all(
    small_resnet: ResNet, method: str, with_new_class: bool
) -> None:
    learner = prol.create(method, small_resnet, memory=5, replay=3)
    assert isinstance(learner, ReplayLearner)
    for step in range(3):
        learner.learn(pictures([0, 1, 2], step), [0, 1, 2])
    trunk = learner.network.model.stages[1][0].conv1.weight  # type: ignore[index,union-attr]
    kept = trunk.detach().clone()
    with torch.no_grad():
        trunk[0, 0, 0, 0] = torch.inf
    before, last = learner.state(), dict(learner.report())
    kinds = [0, 7] if with_new_class else [0, 1]
    with pytest.raises(ValueError, match="not finite"):
        learner.learn(pictures(kinds, 5), kinds)
    assert difference(before, learner.state()) == ""
    assert dict(learner.report()) == last
    assert learner.classes == [0, 1, 2]
    assert learner.memory.rows.tolist()[:-1] == learner.memory.places.rows.tolist()
    with torch.no_grad():
        trunk.copy_(kept)
    learner.learn(pictures(kinds, 5), kinds)  # and goes on
    assert learner.memory.places.met == 11


@pytest.mark.parametrize("method", ["er", "er_ace", "derpp"])
def test_going_on_from_a_state_is_going_on(small_resnet: ResNet, method: str) -> None:
    learner = make(method, small_resnet, announced=["a"])
    for step, labels in enumerate(STREAM[:4]):
        learner.learn(images_of(labels, step), labels)
    twin = prol.create(method, small_resnet, seed=3, memory=6, replay=4, lr=0.01)
    twin.load_state(*learner.state())
    for step, labels in enumerate(STREAM[4:]):
        for one in (learner, twin):
            one.learn(images_of(labels, 50 + step), labels)
        assert difference(learner.state(), twin.state()) == ""


def test_it_passes_the_checks_of_a_learner(small_resnet: ResNet) -> None:
    results = prol.check_learner(make("er", small_resnet, announced=[], memory=20))
    assert {r.name for r in results if r.outcome == "passed"} == set(CHECKS) - {"nothing_outlives_its_step"}


@pytest.mark.parametrize("method", ["er", "er_ace", "derpp"])
def test_a_step_reads_nothing_from_the_device(small_resnet: ResNet, method: str) -> None:
    learner = make(method, small_resnet)
    learner.learn(images_of(["e", "b", "a"], 0), ["e", "b", "a"])
    pixels, rows = small_resnet.read(images_of(["g", "e"], 1)), torch.tensor([0, 2])
    drawn = learner._draw(rows) | learner._planned(learner.memory.plan(rows.tolist(), learner.random))
    learner._names = tuple(drawn)
    staged = learner._staged_with(pixels, drawn, None)
    with NothingRead():
        learner._one_step(*learner._see(*staged).values(), rows)


def test_the_memory_grows_to_its_size_and_bytes_are_counted(small_resnet: ResNet) -> None:
    learner = make("er", small_resnet)
    assert isinstance(learner, ER)
    for step, labels in enumerate(STREAM):
        learner.learn(images_of(labels, step), labels)
        met = sum(map(len, STREAM[: step + 1]))
        stored = learner.footprint().samples_stored
        assert (stored.count, stored.bytes) == (min(6, met), min(6, met) * 3 * 16 * 16)
    assert learner.class_counts().tolist() == [2, 4, 6, 6]
    assert learner.class_counts().sum() == learner.memory.places.met


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


@pytest.mark.parametrize("protocol", ["disjoint", "blurry", "iblurry", "siblurry", "gradual", "imbalanced"])
def test_it_runs_on_every_stream_and_its_result_says_what_it_kept(tmp_path: Path, protocol: str) -> None:
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
