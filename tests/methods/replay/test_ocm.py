"""OCM: its losses against the formulas image by image, and the old network."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.small_streams import pictures
from prol.backbones import ResNet
from prol.learner import Amount
from prol.methods.replay.ocm import OCM
from prol.methods.replay.views import CROP_GREY, apply_views

SMALL = {"memory": 20, "replay": 6, "rotations": 3, "projection": 8}

TASKS = ([0, 1, 2], [3, 4])


def make(backbone: ResNet, seed: int = 0, **options: Any) -> OCM:
    learner = prol.create("ocm", backbone, seed=seed, **{**SMALL, **options})
    assert isinstance(learner, OCM)
    return learner


def teach(learner: OCM, tasks: int, steps: int = 2) -> OCM:
    for kinds in TASKS[:tasks]:
        learner.boundary(kinds)
        for step in range(steps):
            learner.learn(pictures(kinds, seed=step), kinds)
    return learner


def chunk(kinds: list[int]) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(pictures(kinds, seed=9)).permute(0, 3, 1, 2).double() / 255, torch.tensor(kinds)


def turned(image: Tensor, version: int) -> Tensor:
    upper, lower = image[:, : image.shape[1] // 2], image[:, image.shape[1] // 2 :]
    upper = upper.flip((1, 2)) if version // 4 in (1, 3) else upper
    lower = lower.flip((1, 2)) if version // 4 in (2, 3) else lower
    return torch.rot90(torch.cat([upper, lower], 1), version % 4, (1, 2))


def slow_loss(similarity: Tensor, labels: list[Any], itself: bool, pairs: bool) -> float:
    """Means over i of surprises of the class, twice that and of the pair where there are pairs."""
    count, whole = len(labels), 0.0
    scaled = (similarity.detach() / 0.07).tolist()
    for i in range(count):
        among = [j for j in range(count) if itself or j != i]
        highest = max(scaled[i][j] for j in among)
        total = highest + math.log(sum(math.exp(scaled[i][j] - highest) for j in among))
        own = [total - scaled[i][j] for j in among if labels[j] == labels[i]]
        members = sum(label == labels[i] for label in labels)  # itself among them, also where it adds nothing
        whole += (2 if pairs else 1) * sum(own) / members
        if pairs:
            whole += total - scaled[i][(i + count // 2) % count]
    return whole / count


class Slow:
    """The method's formulas over a learner's own weights, image by image."""

    def __init__(self, learner: OCM, drawn: dict[str, Tensor]) -> None:
        self.learner, self.start, self.drawn = learner, int(drawn["columns"][0]), drawn

    def batch(self, images: Tensor, rows: list[int], views: str) -> tuple[Tensor, list[Any]]:
        plain = torch.stack([turned(image, version) for version in range(3) for image in images])
        labels = [(row, version) for version in range(3) for row in rows]
        return torch.cat([plain, apply_views(CROP_GREY, plain, self.drawn[views])]), labels

    def projected(self, features: Tensor) -> Tensor:
        projector = self.learner.extras["projector"]
        z = features @ projector.weight.T + projector.bias
        return z / z.norm(dim=1, keepdim=True)

    def likeness(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.learner.network.features(images, "batch")
        z = self.projected(features)
        g = (features / features.norm(dim=1, keepdim=True))[:, self.start : self.start + 8]
        return z @ z.T + z @ g.T, z

    def logits(self, images: Tensor) -> Tensor:
        views = apply_views(CROP_GREY, images, self.drawn["views"])
        return self.learner.heads[0].logits(self.learner.network.features(views, "batch"))


def test_the_first_task_learns_labels_and_contrast_from_the_chunk_alone(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet), 1)
    images, rows = chunk([0, 2, 2])
    drawn = learner.draw(rows)
    slow = Slow(learner, drawn)
    batch, labels = slow.batch(images, rows.tolist(), "turned")
    values, _ = learner.losses(images, rows, drawn)
    assert set(values) == {"new", "labels", "total"}
    expected = slow_loss(slow.likeness(batch)[0], labels * 2, itself=False, pairs=True)
    assert float(values["new"].detach()) == pytest.approx(expected)
    torch.testing.assert_close(values["labels"], F.cross_entropy(slow.logits(images), rows))
    torch.testing.assert_close(values["total"], values["new"] + values["labels"])


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_later_tasks_add_the_memory_and_what_the_old_network_says(small_resnet: ResNet, scale: float) -> None:
    learner = teach(make(small_resnet, later_scale=scale), 1)
    before = learner.clone()  # at the end of the first task
    learner.boundary([3, 4])
    learner.learn(pictures([3, 4]), [3, 4])
    images, rows = chunk([3, 4])
    drawn = learner.draw(rows)
    slow = Slow(learner, drawn)
    new, labels = slow.batch(images, rows.tolist(), "turned")
    recalled, memory_rows = learner.recalled(drawn["slots"]), drawn["memory_rows"]
    assert len(recalled) == 6
    both, memory_labels = slow.batch(recalled, memory_rows.tolist(), "memory_turned")
    values, _ = learner.losses(images, rows, drawn)
    likeness, z = slow.likeness(both)
    plain = both[: len(memory_labels)]
    old_z = Slow(before, drawn).projected(before.network.features(plain, "eval"))
    views = apply_views(CROP_GREY, recalled, drawn["views"])
    old_logits = before.heads[0].logits(before.network.features(views, "eval")).detach()
    logits = slow.logits(recalled).detach()
    expected = {
        "new": slow_loss(scale * slow.likeness(new)[0], labels * 2, itself=False, pairs=True),
        "all": slow_loss(scale * likeness, memory_labels * 2, itself=True, pairs=False),
        "kept": slow_loss(z[: len(plain)] @ old_z.T, memory_labels, itself=True, pairs=False),
        "logits": float((logits[:, :3] - old_logits).square().mean()),
        "labels": float(F.cross_entropy(logits, memory_rows)),
    }
    assert values.keys() == expected.keys() | {"total"}
    for name, value in expected.items():
        assert float(values[name].detach()) == pytest.approx(value), name
    assert float(values["total"].detach()) == pytest.approx(sum(expected.values()))


def old_tensors(learner: OCM) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in learner.state()[0].items() if name.startswith("old_")}


def test_the_old_network_stays_as_it_was_when_the_task_began(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet), 1)
    assert learner.old.classes == 0
    assert not old_tensors(learner)
    learner.boundary([3, 4])
    old, now, running = old_tensors(learner), learner.trained(), learner.network.running()
    assert learner.old.classes == 3
    assert all(torch.equal(old[f"old_network/{name}"], p) for name, p in learner.network.trained().items())
    learner.learn(pictures([3, 4]), [3, 4])
    after = old_tensors(learner)
    assert all(torch.equal(after[name], tensor) for name, tensor in old.items())
    assert not any(torch.equal(after[f"old_network/{name}"], now[name]) for name in learner.network.trained())
    assert not any(torch.equal(after[f"old_running/{name}"], tensor) for name, tensor in running.items())


def test_a_task_in_which_nothing_was_learnt_leaves_the_old_network_as_it_was(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    learner.boundary([0, 1, 2])
    learner.boundary([3, 4])
    assert learner.old.classes == 0
    learner.learn(pictures([3, 4]), [3, 4])
    learner.boundary([5])
    assert learner.old.classes == 5
    before = old_tensors(learner)
    learner.boundary([6])
    assert all(torch.equal(before[name], tensor) for name, tensor in old_tensors(learner).items())


def test_its_gradient_reaches_every_weight(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet), 2)
    images, rows = chunk([3, 4])
    learner.live = [head.trained() for head in learner.heads]
    values, _ = learner.losses(images, rows, learner.draw(rows))
    leaves = [*learner.trained().values(), *(part.leaf for part in learner.live[0].values())]
    assert all(bool(slope.any()) for slope in torch.autograd.grad(values["total"], leaves))


def test_the_memory_gives_at_most_seven_images_a_class(small_resnet: ResNet) -> None:
    learner = make(small_resnet, replay=64)
    learner.boundary()
    for seed in range(20):
        learner.learn(pictures([0], seed=seed), [0])
    learner.boundary()
    assert len(learner.draw(torch.tensor([0]))["slots"]) == 7
    learner.learn(pictures([1]), [1])
    assert len(learner.draw(torch.tensor([1]))["slots"]) == 14


def test_footprint_counts_the_old_network_once_there_is_one(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet), 1)
    one = learner.footprint()
    assert one.parameters_stored == one.trained_now
    running = sum(tensor.numel() for tensor in small_resnet.running().values())
    assert one.statistics_stored.count == running + 3
    learner.boundary([3, 4])
    two, head = learner.footprint(), small_resnet.width + 1
    assert two.trained_now == Amount(one.trained_now.count + 2 * head, one.trained_now.bytes + 8 * 2 * head)
    assert two.parameters_stored.count == two.trained_now.count + one.trained_now.count
    assert two.statistics_stored.count == 2 * running + 5


def test_classes_taken_out_are_taken_out_of_the_old_network_too(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet), 2)
    weight = old_tensors(learner)["old_head/weight"]
    learner.remove_class(1)
    assert learner.old.classes == learner.clock.first_row == 2
    assert torch.equal(old_tensors(learner)["old_head/weight"], weight[[0, 2]])
    learner.merge_classes(4, 0)
    assert torch.equal(old_tensors(learner)["old_head/weight"], weight[[0, 2]])
    learner.merge_classes(2, 3)
    assert learner.old.classes == learner.clock.first_row == 1
    learner.learn(pictures([3, 0]), [3, 0])


def test_steps_go_down(small_resnet: ResNet) -> None:
    learner = make(small_resnet, lr=2e-3)
    for kinds in TASKS:
        learner.boundary(kinds)
        totals = []
        for _ in range(12):
            learner.learn(pictures(kinds * 2), kinds * 2)
            totals.append(learner.report()["new"] + learner.report()["labels"])
        assert sum(totals[-3:]) < 0.95 * sum(totals[1:4])


def test_constants_are_those_of_its_authors(small_resnet: ResNet) -> None:
    options = prol.create("ocm", small_resnet).options
    assert (options.lr, options.temperature, options.projection, options.rotations) == (1e-3, 0.07, 128, 16)
    assert OCM.beta2 == 0.99
