"""Every weight trained, and nothing protected."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from golden_files import tiny_vit
from methods.small_streams import changed, pictures, tensors
from prol.backbones import ViT, evaluation_input
from prol.learner import Amount
from prol.methods.finetune import Finetune


def make(vit: ViT, **options: Any) -> Finetune:
    learner = prol.create("finetune", vit, **{"augment": "none", "lr": 1e-3, **options})
    assert isinstance(learner, Finetune)
    return learner


def with_a_float32_trunk() -> ViT:
    """What precision bf16 is on a GPU, one size up: a trunk with fewer bits than the residual stream."""
    vit = tiny_vit()
    for name, parameter in vit.model.named_parameters():
        if "norm" not in name and name not in ("cls_token", "pos_embed"):
            parameter.data = parameter.data.float()
    return vit


def inputs(vit: ViT, images: object) -> Tensor:
    return evaluation_input(vit.read(images), vit.preprocessing, torch.device("cpu"), torch.float64)


def test_steps_are_those_of_torchs_adam_on_all_weights(tiny: ViT) -> None:
    learner, twin = make(tiny), tiny.fork("all")
    learner.boundary([0, 1, 2])
    layer = torch.nn.Linear(64, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(tensors(learner)["head/weight"])
        layer.bias.copy_(tensors(learner)["head/bias"])
    optimiser = torch.optim.Adam([*layer.parameters(), *twin.trained().values()], lr=1e-3)
    for step in range(3):
        kinds = [step % 3, (step + 1) % 3, 0]
        learner.learn(pictures(kinds, step), kinds)
        optimiser.zero_grad()
        F.cross_entropy(layer(twin.features(inputs(tiny, pictures(kinds, step)))), torch.tensor(kinds)).backward()
        optimiser.step()
    expected = layer(twin.features(inputs(tiny, pictures([2, 1])))).float()
    torch.testing.assert_close(learner.predict(pictures([2, 1])), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(tensors(learner)["head/weight"], layer.weight.detach(), rtol=0, atol=1e-9)


def test_every_weight_moves_and_the_backbone_it_began_with_stays_as_it_is(tiny: ViT) -> None:
    original = {name: p.clone() for name, p in tiny.model.named_parameters()}
    learner = make(tiny)
    learner.boundary([0, 1])
    before = tensors(learner)
    learner.learn(pictures([0, 1]), [0, 1])
    assert changed(before, tensors(learner)) == {name for name in before if name != "random"}
    assert {name.removeprefix("weights/") for name in before if name.startswith("weights/")} == set(original)
    assert all(torch.equal(p, original[name]) for name, p in tiny.model.named_parameters())


@pytest.mark.parametrize("options", [{}, {"intra": 1.0}, {"inter": 0.0, "intra": 1.0}], ids=["inter", "both", "intra"])
def test_a_short_stream_lowers_the_loss_and_is_learnt(tiny: ViT, options: dict[str, float]) -> None:
    learner, totals = make(tiny, **options), []
    learner.boundary([0, 1, 2])
    for step in range(15):
        learner.learn(pictures([0, 1, 2], step), [0, 1, 2])
        totals.append(learner.report()["total"])
    assert totals[-1] < totals[0] / 2
    assert learner.predict(pictures([0, 1, 2], seed=99)).argmax(1).tolist() == [0, 1, 2]


def test_nothing_protects_old_classes(tiny: ViT) -> None:
    learner = make(tiny)
    for classes in ([0, 1], [2, 3]):
        learner.boundary(classes)
        for step in range(15):
            learner.learn(pictures(classes, step), classes)
    assert set(learner.predict(pictures([0, 1, 2, 3], seed=99)).argmax(1).tolist()) == {2, 3}


def test_reported_losses_are_cross_entropies_over_all_and_over_the_tasks_classes(tiny: ViT) -> None:
    learner = make(tiny, inter=0.5, intra=2.0)
    learner.boundary([0, 1])
    learner.learn(pictures([0, 1]), [0, 1])
    learner.boundary([2, 3])
    logits, rows = learner.predict(pictures([0, 2, 3])).double(), torch.tensor([0, 2, 3])
    learner.learn(pictures([0, 2, 3]), [0, 2, 3])
    r = learner.report()
    assert r["inter"] == pytest.approx(F.cross_entropy(logits, rows).item(), rel=1e-5)
    assert r["intra"] == pytest.approx(F.cross_entropy(logits[1:, 2:], rows[1:] - 2).item(), rel=1e-5)
    assert r["total"] == pytest.approx(0.5 * r["inter"] + 2.0 * r["intra"])


def test_the_rate_is_used_as_stated_unless_scaling_is_asked_for(tiny: ViT) -> None:
    for options, rate in (({}, 1e-4), ({"lr_scaling": True, "chunk": 128}, 0.5e-4)):
        learner = make(tiny, **{"lr": 1e-4, **options})
        learner.learn(pictures([0, 1]), [0, 1])
        assert learner.report()["lr"] == rate


def test_clipped_gradients_make_smaller_first_moments(tiny: ViT) -> None:
    free, clipped = make(tiny), make(tiny, clip=1e-3)
    for learner in (free, clipped):
        learner.learn(pictures([0, 1]), [0, 1])
    lengths = [
        torch.stack([t.square().sum() for name, t in tensors(learner).items() if name.endswith("/mean")]).sum().sqrt()
        for learner in (free, clipped)
    ]
    assert lengths[0] > 1e-3
    assert lengths[1] == pytest.approx(1e-4, rel=1e-2)  # a tenth of the clipped gradient


def test_the_optimiser_starts_anew_with_a_task(tiny: ViT) -> None:
    learner = make(tiny)
    for classes in ([0, 1], [2]):
        learner.boundary(classes)
        for step in range(2):
            learner.learn(pictures(classes, step), classes)
    assert (learner.adam.step, learner.clock.number, learner.clock.first_row) == (2, 1, 2)


def test_its_footprint_is_every_weight(tiny: ViT) -> None:
    learner = make(tiny)
    learner.learn(pictures([0, 1, 2]), [0, 1, 2])
    network = sum(p.numel() for p in tiny.model.parameters())
    found = learner.footprint()
    assert found.trained_now == found.parameters_stored == Amount(network + 3 * 65, (network + 3 * 65) * 8)
    assert found.statistics_stored == found.samples_stored == Amount(0, 0)


def test_a_trunk_of_fewer_bits_is_trained_in_those_of_the_residual_stream() -> None:
    vit = with_a_float32_trunk()
    learner, wide = make(vit, lr=1e-9), make(tiny_vit(), lr=1e-9)
    for step in range(3):
        learner.learn(pictures([0, 1], step), [0, 1])
        wide.learn(pictures([0, 1], step), [0, 1])
    # Steps of 1e-9 would be lost in float32, where weights near 1 are 1e-7 apart.
    assert {t.dtype for name, t in tensors(learner).items() if name != "random"} == {torch.float64}
    begun = make(vit).weights["blocks.0.mlp.fc1.weight"]
    moved = (learner.weights["blocks.0.mlp.fc1.weight"] - begun).abs()
    assert 0 < moved.mean() < 1e-8
    computed_with = learner.working.trained()["blocks.0.mlp.fc1.weight"]
    assert torch.equal(computed_with, learner.weights["blocks.0.mlp.fc1.weight"].float())
    torch.testing.assert_close(learner.predict(pictures([0, 1])), wide.predict(pictures([0, 1])), rtol=0, atol=1e-3)
    twin = learner.clone()
    assert torch.equal(twin.predict(pictures([0, 1])), learner.predict(pictures([0, 1])))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"inter": 0.0}, "inter and intra"),
        ({"chunk": 0}, "chunk must be from 1 to 10000, got 0"),
        ({"clip": 0.0}, "clip must be a finite number above 0"),
        ({"lr": -1.0}, "lr must be a finite number"),
    ],
)
def test_options_that_teach_nothing_are_refused(tiny: ViT, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(tiny, **options)


def test_a_class_that_joins_a_task_leaves_every_weight_its_moments(tiny: ViT) -> None:
    """Against torch's Adam over a head that has the third class from the start, but no gradient for it."""
    learner, twin = make(tiny), tiny.fork("all")
    drawn = torch.Generator()
    drawn.set_state(learner.random.get_state())
    rows = torch.cat([torch.empty(count, 64).normal_(0, 0.02, generator=drawn) for count in (2, 1)]).double()
    layer = torch.nn.Linear(64, 3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(rows)
        layer.bias.zero_()
    optimiser = torch.optim.Adam([*layer.parameters(), *twin.trained().values()], lr=1e-3)
    for step, kinds in enumerate([[0, 1, 0], [1, 0, 1], [0, 2, 1], [2, 2, 0]]):
        learner.learn(pictures(kinds, step), kinds)
        optimiser.zero_grad()
        logits = layer(twin.features(inputs(tiny, pictures(kinds, step))))[:, : 2 if step < 2 else 3]
        F.cross_entropy(logits, torch.tensor(kinds)).backward()
        optimiser.step()
    assert (learner.clock.number, learner.adam.step) == (0, 4)
    torch.testing.assert_close(tensors(learner)["head/weight"], layer.weight.detach(), rtol=0, atol=1e-9)
    expected = layer(twin.features(inputs(tiny, pictures([2, 1])))).float()
    torch.testing.assert_close(learner.predict(pictures([2, 1])), expected, rtol=0, atol=1e-6)
