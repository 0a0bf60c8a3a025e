"""What holds for L2P, DualPrompt, CODA-Prompt and ConvPrompt alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import prol
from golden_files import tiny_vit
from methods.small_streams import changed_rows, pictures, tensors
from prol.backbones import ViT
from prol.learner import Learner
from prol.tables import Amount

PLAIN: dict[str, Any] = {"augment": "none", "lr": 0.01, "lr_scaling": False}
METHODS: dict[str, dict[str, Any]] = {
    "l2p": {"picks": 2, "pool": 4, "length": 2},
    "dualprompt": {"e_blocks": 2},
    "coda_prompt": {"blocks": 3, "components": 3},
    "convprompt": {"blocks": 2, "schedule": "2,1"},
}
LINEAR = ["l2p", "dualprompt", "coda_prompt"]
every_method = pytest.mark.parametrize("method", METHODS)


def make(method: str, dtype: torch.dtype = torch.float64, **options: Any) -> Learner:
    return prol.create(method, tiny_vit(dtype), **{**PLAIN, **METHODS[method], **options})


def learn(learner: Learner, kinds: list[int], seed: int = 0) -> None:
    learner.learn(np.stack([pictures([kind], seed)[0] for kind in kinds]), kinds)


def two_tasks(method: str, steps: int = 2, **options: Any) -> Learner:
    learner = make(method, **options)
    for classes in ([0, 1], [2, 3]):
        learner.boundary(classes)
        for step in range(steps):
            learn(learner, classes, step)
    return learner


@every_method
def test_a_short_stream_lowers_the_loss_and_is_learnt(method: str) -> None:
    learner, ce = make(method), []
    learner.boundary([0, 1, 2])
    for step in range(12):
        learn(learner, [0, 1, 2], step)
        ce.append(learner.report()["ce"])
    assert ce[-1] < 0.3 * ce[0]
    assert learner.predict(pictures([0, 1, 2], seed=99)).argmax(1).tolist() == [0, 1, 2]


@every_method
def test_two_tasks_are_told_apart_without_being_told_which_it_is(method: str) -> None:
    learner = two_tasks(method, steps=12)
    right = (learner.predict(pictures([0, 1, 2, 3], seed=99)).argmax(1) == torch.arange(4)).sum()
    assert right >= 3


@every_method
def test_the_untouched_network_stays_as_it_is(method: str) -> None:
    learner = make(method)
    vit = learner.backbone
    assert isinstance(vit, ViT)
    before = {name: p.clone() for name, p in vit.model.named_parameters()}
    learn(learner, [0, 1])
    assert all(torch.equal(p, before[name]) for name, p in vit.model.named_parameters())


@every_method
def test_the_optimiser_starts_anew_with_a_task(method: str) -> None:
    learner: Any = make(method)
    for step in range(3):
        learn(learner, [0, 1], step)
    assert learner.adam.step == 3
    learner.boundary([2])
    learn(learner, [2, 2])
    assert (learner.adam.step, learner.clock.number, learner.clock.first_row) == (1, 1, 2)


@every_method
def test_without_boundaries_a_settled_task_gives_way_to_an_unseen_class(method: str) -> None:
    learner: Any = make(method, task_min_steps=2)
    for kinds, expected in (([0, 1], 0), ([2], 0), ([2, 1], 0), ([3], 1), ([3, 4], 1), ([0], 1)):
        learn(learner, kinds)
        assert learner.clock.number == expected
    assert learner.predict(pictures([0])).shape == (1, 5)


@every_method
def test_the_rate_is_scaled_by_the_configured_chunk(method: str) -> None:
    for options, rate in (({}, 0.1 * 10 / 256), ({"chunk": 128}, 0.05), ({"lr_scaling": False}, 0.1)):
        learner = make(method, **{"lr": 0.1, "lr_scaling": True, **options})
        learn(learner, [0, 1])
        assert learner.report()["lr"] == rate


@every_method
def test_gradients_are_clipped_together(method: str) -> None:
    lengths = []
    for clip in (None, 1e-3):
        learner = make(method, clip=clip)
        learn(learner, [0, 1])
        means = [t for name, t in tensors(learner).items() if name.startswith("adam/") and name.endswith("/mean")]
        lengths.append(torch.cat([mean.flatten() for mean in means]).norm().item() / 0.1)  # Adam's first mean is 0.1 g
    assert lengths[0] > 0.1
    assert lengths[1] == pytest.approx(1e-3, rel=1e-3)


@every_method
def test_the_footprint_of_parameters_is_that_of_the_saved_state(method: str) -> None:
    learner = two_tasks(method)
    stored = [t for name, t in tensors(learner).items() if not name.startswith(("adam/", "seen/", "random"))]
    found = learner.footprint()
    assert found.parameters_stored == Amount.of(*stored)
    assert found.trained_now.count <= found.parameters_stored.count
    assert found.samples_stored == Amount(0, 0)


@every_method
@pytest.mark.parametrize(
    ("options", "says"),
    [({"chunk": 0}, "chunk must be from 1 to 10000"), ({"lr": -1.0}, "lr must be"), ({"clip": 0.0}, "clip.*or none")],
)
def test_options_that_make_no_sense_are_refused(method: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(method, **options)


@pytest.mark.parametrize(
    ("method", "options"),
    [("dualprompt", {"e_blocks": 3}), ("coda_prompt", {"blocks": 5}), ("convprompt", {"blocks": 5})],
)
def test_more_blocks_than_the_network_has_are_refused(method: str, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="5 prompted blocks, but the backbone has 4"):
        make(method, **options)


# Which classes compete


@pytest.mark.parametrize("method", LINEAR)
@pytest.mark.parametrize(
    ("mask", "kinds", "moved"),
    [
        ("task", [2, 2], {2, 3}),
        ("task", [2, 0], {0, 2, 3}),
        ("task", [0, 0], {0, 2, 3}),
        ("batch", [2, 0], {0, 2}),
        ("seen", [2, 2], {0, 1, 2, 3}),
    ],
    ids=["task", "task, with an old class", "task, an old class alone", "batch", "seen"],
)
def test_only_rows_of_classes_that_compete_move(method: str, mask: str, kinds: list[int], moved: set[int]) -> None:
    learner = make(method, mask=mask)
    learner.boundary([0, 1])
    learn(learner, [0, 1])
    learner.boundary([2, 3])
    before = tensors(learner)["head/bias"].unsqueeze(1)
    learn(learner, kinds)
    assert changed_rows(before, tensors(learner)["head/bias"].unsqueeze(1)) == moved


@every_method
@pytest.mark.parametrize(("mask", "columns"), [("task", [2, 3]), ("batch", [2]), ("seen", [0, 1, 2, 3])])
def test_the_reported_cross_entropy_is_over_those_classes(method: str, mask: str, columns: list[int]) -> None:
    learner: Any = two_tasks(method)
    if method == "dualprompt":
        learner.expert.rows[0] = learner.expert.rows[1]  # whichever key is nearest, it is the current task's prefix
    scores = learner.predict(pictures([2])).double()[:, columns]
    learner.options = type(learner.options)(**{**vars(learner.options), "mask": mask})
    learn(learner, [2])
    expected = F.cross_entropy(scores, torch.tensor([columns.index(2)])).item()
    assert learner.report()["ce"] == pytest.approx(expected, rel=1e-4, abs=1e-6)


# Classes of earlier tasks that come again


@every_method
def test_an_old_class_that_comes_again_is_learnt_from_at_any_time(method: str) -> None:
    learner = two_tasks(method)
    for kinds in ([0, 2], [0, 1], [1]):
        learn(learner, kinds, seed=7)
        assert np.isfinite(learner.report()["total"])
    learner.boundary([1, 0])  # a task of nothing but old classes
    learn(learner, [0, 1])
    learn(learner, [1, 4])
    assert learner.classes == [0, 1, 2, 3, 4]
    assert learner.predict(pictures([0, 4])).isfinite().all()


@pytest.mark.parametrize("method", LINEAR)
def test_an_old_class_can_be_brought_back(method: str) -> None:
    learner = two_tasks(method)
    before = learner.predict(pictures([0], seed=5)).softmax(1)[0, 0]
    for step in range(8):
        learn(learner, [0, 2], step)
    assert learner.predict(pictures([0], seed=5)).softmax(1)[0, 0] > before


# Answers
