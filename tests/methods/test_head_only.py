"""A linear head on the frozen backbone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.small_streams import changed_rows, pictures, tensors
from prol.backbones import ViT, evaluation_input
from prol.learner import Amount
from prol.methods.head_only import HeadOnly


def make(vit: ViT, **options: Any) -> HeadOnly:
    learner = prol.create("head_only", vit, **{"augment": "none", "lr": 0.01, "lr_scaling": False, **options})
    assert isinstance(learner, HeadOnly)
    return learner


def features(vit: ViT, images: object) -> Tensor:
    return vit.features(evaluation_input(vit.read(images), vit.preprocessing, torch.device("cpu"), torch.float64))


def test_steps_are_those_of_torchs_adam_on_a_linear_layer(tiny: ViT) -> None:
    learner = make(tiny)
    learner.boundary([0, 1, 2])
    layer = torch.nn.Linear(64, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(tensors(learner)["weight"])
        layer.bias.copy_(tensors(learner)["bias"])
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.01)
    for step in range(5):
        kinds = [step % 3, (step + 1) % 3, 0]
        learner.learn(pictures(kinds, step), kinds)
        optimiser.zero_grad()
        F.cross_entropy(layer(features(tiny, pictures(kinds, step))), torch.tensor(kinds)).backward()
        optimiser.step()
    torch.testing.assert_close(tensors(learner)["weight"], layer.weight.detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(tensors(learner)["bias"], layer.bias.detach(), rtol=0, atol=1e-12)
    expected = layer(features(tiny, pictures([2, 1]))).float()
    torch.testing.assert_close(learner.predict(pictures([2, 1])), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{}, {"inter": 0.5, "intra": 1.0}, {"inter": 0.0, "intra": 1.0}], ids=["inter", "both", "intra"]
)
def test_it_learns_its_classes(tiny: ViT, options: dict[str, float]) -> None:
    learner = make(tiny, **options)
    learner.boundary([0, 1, 2])
    for step in range(20):
        learner.learn(pictures([0, 1, 2], step), [0, 1, 2])
    assert learner.predict(pictures([0, 1, 2], seed=99)).argmax(1).tolist() == [0, 1, 2]


def test_the_backbone_stays_as_it_is(tiny: ViT) -> None:
    before = {name: p.clone() for name, p in tiny.model.named_parameters()}
    learner = make(tiny)
    learner.learn(pictures([0, 1]), [0, 1])
    assert all(torch.equal(p, before[name]) for name, p in tiny.model.named_parameters())


def test_the_head_grows_with_the_classes_and_keeps_what_it_had(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(pictures([0, 1]), [0, 1])
    before = tensors(learner)
    learner.boundary([2, 3, 4])
    after = tensors(learner)
    assert after["weight"].shape == (5, 64)
    assert torch.equal(after["weight"][:2], before["weight"])
    assert torch.equal(after["bias"], torch.cat([before["bias"], torch.zeros(3).double()]))
    assert learner.predict(pictures([0])).shape == (1, 5)


def two_tasks(vit: ViT, **options: Any) -> HeadOnly:
    learner = make(vit, **options)
    learner.boundary([0, 1])
    learner.learn(pictures([0, 1]), [0, 1])
    learner.boundary([2, 3])
    return learner


@pytest.mark.parametrize(
    ("options", "moved"),
    [
        ({"inter": 1.0, "intra": 0.0}, {0, 1, 2, 3}),
        ({"inter": 1.0, "intra": 1.0}, {0, 1, 2, 3}),
        ({"inter": 0.0, "intra": 1.0}, {2, 3}),
    ],
    ids=["inter", "both", "intra"],
)
def test_the_inter_task_loss_reaches_all_rows_and_the_intra_task_loss_the_tasks_own(
    tiny: ViT, options: dict[str, float], moved: set[int]
) -> None:
    learner = two_tasks(tiny, **options)
    before = tensors(learner)["weight"]
    learner.learn(pictures([2, 3]), [2, 3])
    assert changed_rows(before, tensors(learner)["weight"]) == moved


def test_reported_losses_are_cross_entropies_over_all_and_over_the_tasks_classes(tiny: ViT) -> None:
    learner = two_tasks(tiny, inter=0.5, intra=2.0)
    logits, rows = learner.predict(pictures([2, 3])).double(), torch.tensor([2, 3])
    learner.learn(pictures([2, 3]), [2, 3])
    r = learner.report()
    assert r["inter"] == pytest.approx(F.cross_entropy(logits, rows).item(), rel=1e-5)
    assert r["intra"] == pytest.approx(F.cross_entropy(logits[:, 2:], rows - 2).item(), rel=1e-5)
    assert r["total"] == pytest.approx(0.5 * r["inter"] + 2.0 * r["intra"])


def test_samples_of_old_classes_enter_the_inter_task_loss_only(tiny: ViT) -> None:
    mixed, current, old = (two_tasks(tiny, inter=0.5, intra=2.0) for _ in range(3))
    images = {kind: pictures([kind])[0] for kind in (0, 2)}
    mixed.learn([images[0], images[2]], [0, 2])
    current.learn([images[2]], [2])
    old.learn([images[0]], [0])
    assert mixed.report()["intra"] == pytest.approx(current.report()["intra"])
    assert old.report()["intra"] == 0
    assert 2 * mixed.report()["inter"] == pytest.approx(current.report()["inter"] + old.report()["inter"])


def test_the_rate_is_scaled_by_the_configured_chunk(tiny: ViT) -> None:
    for options, rate in (({}, 0.001953125), ({"chunk": 128}, 0.025), ({"lr_scaling": False}, 0.05)):
        learner = make(tiny, **{"lr": 0.05, "lr_scaling": True, **options})
        learner.learn(pictures([0, 1]), [0, 1])
        assert learner.report()["lr"] == rate


def test_the_optimiser_starts_anew_with_a_task(tiny: ViT) -> None:
    learner = make(tiny)
    for step in range(50):
        learner.learn(pictures([step % 2], step), [step % 2])
    assert learner.adam.step == 50
    learner.learn(pictures([2]), [2])
    assert (learner.adam.step, learner.clock.number, learner.clock.first_row) == (1, 1, 2)


def test_its_footprint_is_the_head(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(pictures([0, 1, 2]), [0, 1, 2])
    found = learner.footprint()
    assert found.trained_now == found.parameters_stored == Amount(3 * 65, 3 * 65 * 8)
    assert found.statistics_stored == found.samples_stored == Amount(0, 0)


@pytest.mark.parametrize(("options", "says"), [({"inter": 0.0}, "inter and intra"), ({"chunk": 0}, "chunk")])
def test_options_that_teach_nothing_are_refused(tiny: ViT, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(tiny, **options)
