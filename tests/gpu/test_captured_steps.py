"""Steps captured as graphs do what steps one by one do. Needs a GPU: `make test-gpu`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import prol
from prol.backbones import ViT, evaluation_input, open_backbone
from prol.backbones.base import Acceleration
from prol.learner import Learner
from prol.methods.prol.learner import PROL
from prol.methods.prol.options import ABLATIONS
from prol.testing.stream import difference

pytestmark = pytest.mark.gpu

Chunk = tuple[Any, list[int]]


def backbone(captured: bool, compiled: bool = False, precision: str = "float32") -> ViT:
    opened = open_backbone("vit_tiny_patch8_64.tiny_imagenet", device="cuda", precision=precision)
    opened.acceleration = Acceleration(compiled=compiled, captured=captured)
    return opened


def learner(captured: bool, compiled: bool = False, precision: str = "float32", **options: Any) -> PROL:
    made = prol.create("prol", backbone(captured, compiled, precision), chunk=10, **options)
    assert isinstance(made, PROL)
    return made


def chunks(count: int, classes: list[int], seed: int, size: int = 10) -> Iterator[Chunk]:
    random = np.random.default_rng(seed)
    for _ in range(count):
        labels = random.choice(classes, size)
        noise = random.integers(0, 60, (size, 32, 32, 3))
        yield (noise + 2 * labels[:, None, None, None] % 190).astype(np.uint8), labels.tolist()


def teach(one: PROL) -> list[dict[str, float]]:
    """Tasks of several widths, chunks of another size, and enough classes to make buffers move."""
    reports, edges = [], (0, 10, 20, 30, 55, 60, 300)
    for task, (first, end) in enumerate(pairwise(edges)):
        classes = list(range(first, end))
        one.boundary(classes)
        for images, labels in [
            *chunks(8, classes, task),
            *chunks(1, classes, 50 + task, size=7),
            *chunks(8, classes, 90),
        ]:
            one.learn(images, labels)
            reports.append(one.report())
    return reports


def losses(one: Learner, tasks: int) -> list[float]:
    """The loss of each step, in tasks of ten classes."""
    found = []
    for task in range(tasks):
        classes = list(range(10 * task, 10 * task + 10))
        one.boundary(classes)
        for images, labels in chunks(8, classes, task):
            one.learn(images, labels)
            found.append(one.report())  # read at the end: steps overlap
    return [numbers["total"] for numbers in found]


@pytest.mark.parametrize(
    "options", [{}, {"tune_norms": False}, {"head": "growing"}, {"preset": "released"}, {"clip": 1.0}], ids=str
)
def test_captured_steps_are_those_one_by_one(options: dict[str, Any]) -> None:
    eager, captured = learner(False, **options), learner(True, **options)
    for one, other in zip(teach(eager), teach(captured), strict=True):
        assert other == pytest.approx(one, rel=1e-3, abs=1e-4)
    images = next(chunks(1, list(range(90)), 7, size=50))[0]
    expected = eager.predict(images)
    for _ in range(6):  # the last ones are replays
        torch.testing.assert_close(captured.predict(images), expected, rtol=1e-2, atol=1e-2)
    assert captured.take_step._function.enabled
    assert any(recording.graph is not None for recording in captured.take_step._function._recordings.values())


def test_compiled_blocks_compute_the_same() -> None:
    plain, fast = learner(False, precision="bf16"), learner(True, compiled=True, precision="bf16")
    for one, other in zip(teach(plain)[:20], teach(fast)[:20], strict=True):
        assert other["total"] == pytest.approx(one["total"], rel=0.05)


@pytest.mark.parametrize("row", ABLATIONS)
def test_every_row_of_the_ablation_learns_the_same_compiled_and_captured(row: str) -> None:
    options = {"ablation": row, "coefficients": "cifar100", "augment": "none"}
    plain, fast = learner(False, **options), learner(True, compiled=True, **options)
    assert losses(fast, tasks=2) == pytest.approx(losses(plain, tasks=2), rel=0.02, abs=0.01)
    assert fast.take_step._function.enabled


def test_a_size_that_comes_once_is_learnt_without_a_plan_for_its_attention() -> None:
    one = learner(True, precision="bf16")
    one.boundary([0, 1])
    for images, labels in chunks(8, [0, 1], 0):
        one.learn(images, labels)
    images, labels = next(chunks(1, [0, 1], 1, size=7))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        one.learn(images, labels)
        one.report()["total"]
    attention = {event.key for event in profile.key_averages() if "attention" in event.key}
    assert attention
    assert not any("cudnn" in name for name in attention)


def test_a_loss_that_is_not_finite_is_told_soon_and_changes_nothing() -> None:
    one = learner(True)
    one.boundary([0, 1])
    for images, labels in chunks(6, [0, 1], 0):
        one.learn(images, labels)
    before = one.state()[0]
    with torch.no_grad():
        kept = one.heads.bias.rows.clone()
        one.heads.bias.rows.fill_(torch.nan)
    images, labels = next(chunks(1, [0, 1], 1))
    one.learn(images, labels)
    with torch.no_grad():
        one.heads.bias.rows.copy_(kept)
    with pytest.raises(ValueError, match="not finite"):
        one.state()
    after = one.state()[0]
    assert all(torch.equal(before[name], after[name]) for name in before if name != "random")


OTHERS = ["l2p", "dualprompt", "coda_prompt", "convprompt", "flyprompt", "lae", "mos", "ease", "finetune", "head_only"]


@pytest.mark.parametrize(
    ("method", "augment"), [*((name, "none") for name in OTHERS), ("mos", "crop_flip"), ("ease", "crop_flip")]
)
def test_other_methods_learn_the_same_captured(method: str, augment: str) -> None:
    plain, captured = (prol.create(method, backbone(fast), augment=augment) for fast in (False, True))
    assert losses(captured, tasks=3) == pytest.approx(losses(plain, tasks=3), rel=0.02, abs=0.01)


def test_a_learner_goes_on_from_a_state_taken_between_replays() -> None:
    one = learner(True)
    one.boundary(list(range(10)))
    for images, labels in chunks(8, list(range(10)), 0):
        one.learn(images, labels)
    twin = one.clone()
    for images, labels in chunks(8, list(range(10)), 1):
        one.learn(images, labels)
        twin.learn(images, labels)
    images = next(chunks(1, list(range(10)), 7, size=20))[0]
    torch.testing.assert_close(twin.predict(images), one.predict(images), rtol=1e-2, atol=1e-2)


FROZEN: dict[str, dict[str, Any]] = {
    "ncm": {},
    "slda": {},
    "ranpac": {"features": 200, "ridge": 100.0},
    "randumb": {"features": 200},
    "foal": {"features": 200},
    "prol_plus": {"adapt_steps": 4},
}


@pytest.mark.parametrize("method", FROZEN)
def test_a_network_that_stays_as_it_is_is_replayed_and_learns_the_same(method: str) -> None:
    images, scores = next(chunks(1, list(range(20)), 7, size=50))[0], []
    for fast in (False, True):
        one: Any = prol.create(method, backbone(captured=fast, compiled=fast), **FROZEN[method])
        for task in range(2):
            for seen, labels in chunks(12, list(range(10 * task, 10 * task + 10)), task):
                one.learn(seen, labels)
        first, *_, last = [one.predict(images) for _ in range(6)]
        torch.testing.assert_close(first, last, rtol=1e-2, atol=1e-2)
        scores.append(last - last.mean(1, keepdim=True))
    plain, replayed = scores
    assert float((replayed - plain).norm() / plain.norm()) < 0.02
    graphs = [recording.graph for recording in one.look._pass._recordings.values()]
    assert sum(graph is not None for graph in graphs) == 2  # chunks of ten, answers to fifty


def test_answers_to_any_number_of_images_have_few_shapes() -> None:
    one = learner(True)
    one.boundary(list(range(10)))
    for images, labels in chunks(4, list(range(10)), 0):
        one.learn(images, labels)
    images = next(chunks(1, list(range(10)), 7, size=100))[0]
    whole = one.predict(images)
    for count in (17, 24, 31, 32, 33, 50, 99):
        torch.testing.assert_close(one.predict(images[:count]), whole[:count], rtol=1e-2, atol=1e-2)
    assert {shapes[0][0][0] for shapes in one._predict._recordings} == {32, 64, 128}


@pytest.mark.parametrize("method", sorted(FROZEN.keys() - {"prol_plus"}))  # whose network moves
def test_features_of_many_batches_are_each_batchs_own(method: str) -> None:
    """Most are replays of one graph, whose results are looked at when all are over."""
    one: Any = prol.create(method, backbone(captured=True), **FROZEN[method])
    one.predict_batch = 20
    images = next(chunks(1, list(range(10)), 3, size=200))[0]
    plain = torch.cat([one.look._pass.function(one_input(one, images[i : i + 20]))["seen"] for i in range(0, 200, 20)])
    torch.testing.assert_close(one.encode_images(images), plain, rtol=1e-3, atol=1e-3)


def one_input(one: Learner, images: Any) -> torch.Tensor:
    pixels = one.backbone.read(images)
    return evaluation_input(pixels, one.preprocessing, one.backbone.device, one.backbone.dtype)


def test_prol_plus_answers_by_the_network_as_it_is_while_it_is_tuned_and_after_a_state_was_loaded() -> None:
    """A graph that is recorded during the tuning reads what the next step changes, and what a state puts there."""
    one: Any = prol.create("prol_plus", backbone(captured=True), adapt_steps=12)
    images = next(chunks(1, list(range(10)), 7, size=20))[0]
    states = []
    for seen, labels in chunks(16, list(range(10)), 0):
        one.learn(seen, labels)
        looked = one.look(one_input(one, images))
        torch.testing.assert_close(looked, one.tuning.seen(one_input(one, images)), rtol=1e-3, atol=1e-3)
        states.append((one.state(), one.predict(images)))
    assert any(recording.graph is not None for recording in one.look._pass._recordings.values())
    for (tensors, meta), scores in (states[5], states[15], states[8]):
        one.load_state(tensors, meta)
        torch.testing.assert_close(one.predict(images), scores, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("method", ["prol", "prol_plus"])
def test_a_chunk_is_undone_after_captured_steps_and_learning_continues(method: str) -> None:
    one, classes = prol.create(method, backbone(True)), list(range(10))
    one.enable_undo()
    one.boundary(classes)
    for images, labels in chunks(8, classes, 0):  # enough for steps to be captured
        one.learn(images, labels)
    before, (images, labels) = one.state(), next(chunks(1, [*classes, 10, 11], 1))
    one.learn(images, labels)
    one.undo()
    assert difference(before, one.state()) == ""
    twin = prol.create(method, backbone(False))
    twin.load_state(*before)
    for images, labels in chunks(8, classes, 2):
        one.learn(images, labels)
        twin.learn(images, labels)
    assert torch.allclose(one.predict(images), twin.predict(images), rtol=1e-3, atol=1e-3)
