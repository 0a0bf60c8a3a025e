from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from test_captured_operations import NothingRead
from test_ocm import chunk, slow_loss, turned
from torch import Tensor

import prol
from methods.small_streams import pictures, same_state
from prol.backbones import ResNet
from prol.methods.replay.onpro import OnPro
from prol.methods.replay.views import CROP_GREY, apply_views

SMALL = {"memory": 20, "replay": 6, "rotations": 3, "projection": 8, "close_pairs": 2}
TASKS = ([0, 1, 2], [3, 4])


def make(backbone: ResNet, seed: int = 0, **options: Any) -> OnPro:
    learner = prol.create("onpro", backbone, seed=seed, **{**SMALL, **options})
    assert isinstance(learner, OnPro)
    return learner


def teach(learner: OnPro, tasks: int, steps: int = 2) -> OnPro:
    for kinds in TASKS[:tasks]:
        learner.boundary(kinds)
        for step in range(steps):
            learner.learn(pictures(kinds, seed=step), kinds)
    return learner


class Slow:
    """The method's formulas over a learner's own weights, image by image."""

    def __init__(self, learner: OnPro, drawn: dict[str, Tensor]) -> None:
        self.learner, self.start, self.drawn = learner, int(drawn["columns"][0]), drawn

    def projected(self, features: Tensor) -> Tensor:
        projector = self.learner.extras["projector"]
        z = features @ projector.weight.T + projector.bias
        return (z / z.norm(dim=1, keepdim=True)).detach()

    def contrast(self, images: Tensor, rows: list[Any], views: str, new: bool) -> tuple[float, Tensor]:
        plain = torch.stack([turned(image, version) for version in range(3) for image in images])
        labels = [(row, version) for version in range(3) for row in rows]
        both = torch.cat([plain, apply_views(CROP_GREY, plain, self.drawn[views])])
        features = self.learner.network.features(both, "batch").detach()
        z = self.projected(features)
        g = (features / features.norm(dim=1, keepdim=True))[:, self.start : self.start + 8]
        return slow_loss(z @ z.T + z @ g.T, labels * 2, itself=not new, pairs=new), z

    def means(self, plain: Tensor, viewed: Tensor, rows: list[int]) -> tuple[float, dict[int, Tensor]]:
        kinds = sorted(set(rows))
        found = [sum(z[i] for i, row in enumerate(rows) if row == kind) for z in (plain, viewed) for kind in kinds]
        found = [mean / mean.norm() for mean in found]
        whole = 0.0
        for i, mean in enumerate(found):
            others = {j: math.exp(float(mean @ other) / 0.5) for j, other in enumerate(found) if j != i}
            whole -= math.log(others[(i + len(kinds)) % len(found)] / sum(others.values()))
        count = len(kinds)
        return whole / len(found), {kind: (found[i] + found[i + count]) / 2 for i, kind in enumerate(kinds)}

    def memory_means(self) -> tuple[float, dict[int, Tensor]]:
        images, rows = self.learner._recalled(self.drawn["mean_slots"]), self.drawn["mean_rows"].tolist()
        both = torch.cat([images, apply_views(CROP_GREY, images, self.drawn["mean_views"])])
        z = self.projected(self.learner.network.features(both, "batch"))
        return self.means(z[: len(rows)], z[len(rows) :], rows)

    def logits(self, images: Tensor) -> Tensor:
        views = apply_views(CROP_GREY, images, self.drawn["views"])
        return self.learner.heads[0].logits(self.learner.network.features(views, "batch")).detach()


def require_losses(learner: OnPro, kinds: list[int], drawn: dict[str, Tensor], memory: dict[str, float]) -> None:
    images, rows = chunk(kinds)
    slow = Slow(learner, drawn)
    expected = dict(memory)
    expected["new"], z = slow.contrast(images, kinds, "turned", new=True)
    count = 3 * len(kinds)
    expected["means"] = slow.means(z[: len(kinds)], z[count : count + len(kinds)], kinds)[0]
    if "labels" not in expected:
        expected["labels"] = float(F.cross_entropy(slow.logits(images), rows))
    values, _ = learner._losses(images, rows, drawn)
    assert values.keys() == expected.keys() | {"total"}
    for name, value in expected.items():
        assert float(values[name].detach()) == pytest.approx(value), name
    assert float(values["total"].detach()) == pytest.approx(sum(expected.values()))


def test_the_first_chunk_is_learnt_alone(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    learner.boundary([0, 1, 2])
    require_losses(learner, [0, 2, 2], learner._draw(torch.tensor([0, 2, 2])), {})
    assert not bool(learner.means.rows.any())


@pytest.mark.parametrize("later", [False, True], ids=["in the first task", "as a later task begins"])
def test_the_memory_is_contrasted_from_then_on_and_gives_the_labels_of_later_tasks(
    small_resnet: ResNet, later: bool
) -> None:
    learner = teach(make(small_resnet), 1)
    if later:
        learner.boundary([3, 4])
    kinds = [3, 4] if later else [0, 2, 2]
    drawn = learner._draw(torch.tensor(kinds))
    slow, recalled, rows = Slow(learner, drawn), learner._recalled(drawn["slots"]), drawn["memory_rows"]
    memory = {"all": slow.contrast(recalled, rows.tolist(), "memory_turned", new=False)[0]}
    memory["memory_means"], means = slow.memory_means()
    if later:
        memory["labels"] = float(F.cross_entropy(slow.logits(recalled), rows))
    before = learner.means.rows.clone()
    require_losses(learner, kinds, drawn, memory)
    for row in range(len(before)):
        torch.testing.assert_close(learner.means.rows[row], means.get(row, before[row]))


def test_later_chunks_of_a_later_task_mix_the_memory(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet, replay=8, mix_chance=0.5), 2, steps=3)
    drawn = learner._draw(torch.tensor([3, 4]))
    assert [len(drawn[name]) for name in ("slots", "close_weights", "views")] == [6, 2, 8]
    slow = Slow(learner, drawn)
    # Which pairs of classes: as chances over all pairs say, found by going through them one by one.
    means, classes = learner.means.rows, range(5)
    share = {(a, b): math.exp(1 / float((means[a] - means[b]).norm())) for a in classes for b in classes if a != b}
    mixed = list(zip(*(drawn[n].tolist() for n in ("slots", "other_slots", "weights")), strict=True))
    for k, (first, second) in enumerate(drawn["close_choices"].tolist()):
        a = chosen({a: sum(s for pair, s in share.items() if pair[0] == a) for a in classes}, first)
        b = chosen({b: share.get((a, b), 0.0) for b in classes}, second)
        slots = drawn["close_slots"]
        mixed.append((int(slots[a, 2 * k]), int(slots[b, 2 * k + 1]), float(drawn["close_weights"][k])))
    known = learner.memory.places.rows.tolist()
    kept = learner.memory.images.double() / 255
    images = torch.stack([(1 - w) * kept[one] + w * kept[two] for one, two, w in mixed])
    labels = [
        known[one] if w == 0 or known[one] == known[two] else f"mixture {i}" for i, (one, two, w) in enumerate(mixed)
    ]
    assert 0 < sum(isinstance(label, str) for label in labels) < 8
    chances = slow.logits(images).log_softmax(1)
    losses = [-(1 - w) * chances[i, known[one]] - w * chances[i, known[two]] for i, (one, two, w) in enumerate(mixed)]
    memory = {"labels": float(sum(losses)) / 8, "memory_means": slow.memory_means()[0]}
    memory["all"] = slow.contrast(images, labels, "memory_turned", new=False)[0]
    require_losses(learner, [3, 4], drawn, memory)


def chosen(shares: dict[int, float], number: float) -> int:
    passed = 0.0
    for place, share in shares.items():
        passed += share / sum(shares.values())
        if number < passed:
            return place
    raise AssertionError("the shares do not add up to 1")


def test_samples_to_mix_are_of_the_classes_they_are_drawn_for(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet, memory=5), 2, steps=3)
    learner.boundary([5])  # met, and not in the memory
    slots, there = learner._draw_of_each(40)
    kept = learner.memory.rows_in(torch.arange(5)).tolist()
    assert there.tolist() == [row in kept for row in range(6)]
    for row in range(6):
        drawn = learner.memory.rows_in(slots[row]).tolist()
        assert set(drawn) == ({row} if row in kept else set(kept))
        if row in kept:
            assert set(slots[row].tolist()) == {slot for slot, held in enumerate(kept) if held == row}


def test_its_gradient_reaches_every_weight(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet), 2)
    images, rows = chunk([3, 4])
    learner._live = [head.trained() for head in learner.heads]
    values, _ = learner._losses(images, rows, learner._draw(rows))
    leaves = [*learner._trained().values(), *(part.leaf for part in learner._live[0].values())]
    assert all(bool(slope.any()) for slope in torch.autograd.grad(values["total"], leaves))


def test_a_step_holds_nothing_that_a_graph_cannot(small_resnet: ResNet) -> None:
    for tasks in (1, 2):
        learner = teach(make(small_resnet), tasks)
        images, rows = chunk(TASKS[tasks - 1])
        drawn = learner._draw(rows) | {"new_slots": torch.arange(len(rows))}
        assert ("close_slots" in drawn) == (tasks == 2)
        learner._names, layout = tuple(drawn), learner._layout()
        with NothingRead():
            learner._one_step((255 * images).to(torch.uint8), *drawn.values(), rows)
        assert learner._layout() == layout


def test_a_learner_with_another_seed_goes_on_to_the_bit(small_resnet: ResNet) -> None:
    for tasks, steps in ((1, 1), (2, 1), (2, 2)):
        learner, twin = teach(make(small_resnet), tasks, steps), teach(make(small_resnet, seed=7), 3 - tasks)
        twin.load_state(*learner.state())
        for one in (learner, twin):
            one.learn(pictures([0, 1]), [0, 1])
            one.boundary([5])
            one.learn(pictures([5, 0]), [5, 0])
        assert same_state(learner, twin)


@pytest.mark.parametrize("kinds", [[3, 0], [3, 7]], ids=["known", "unseen"])
def test_a_loss_that_is_not_finite_changes_nothing(small_resnet: ResNet, kinds: list[int]) -> None:
    learner = teach(make(small_resnet), 2)
    learner.heads[0].bias.rows[1] = torch.inf
    twin = learner.clone()
    with pytest.raises(ValueError, match="not finite"):
        learner.learn(pictures(kinds), kinds)
    assert same_state(learner, twin)


@pytest.mark.parametrize("options", [{"memory": 1, "rotations": 1}, {"memory": 3, "close_pairs": 2}, {"replay": 1}])
def test_little_of_everything_will_do(small_resnet: ResNet, options: dict[str, Any]) -> None:
    learner = make(small_resnet, **options)
    for kind in (0, 1, 0):
        learner.boundary()
        for seed in range(3):
            learner.learn(pictures([kind], seed=seed), [kind])
    assert bool(learner.predict(pictures([0, 1])).isfinite().all())


def test_a_class_taken_out_takes_its_mean_along(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet), 2)
    means, before = learner.means.rows.clone(), learner.footprint().statistics_stored.count
    learner.remove_class(1)
    assert torch.equal(learner.means.rows, means[[0, 2, 3, 4]])
    assert learner.footprint().statistics_stored.count == before - 8 - 1
    learner.learn(pictures([3, 0]), [3, 0])


def test_steps_go_down(small_resnet: ResNet) -> None:
    learner = make(small_resnet, lr=2e-3)
    for kinds in TASKS:
        learner.boundary(kinds)
        totals = []
        for _ in range(20):
            learner.learn(pictures(kinds * 2), kinds * 2)
            totals.append(learner.report()["new"] + learner.report()["labels"])
        assert sum(totals[-5:]) < 0.95 * sum(totals[1:6])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"close_pairs": -1}, "close_pairs must be at least 0, got -1"),
        ({"mix_chance": 1.5}, "mix_chance must be from 0 to 1"),
        ({"close_beta": 0.0}, "close_beta must be a finite number above 0"),
        ({"scale": 0.0}, "scale must be a finite number above 0"),
    ],
)
def test_options_out_of_range_are_refused(small_resnet: ResNet, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(small_resnet, **options)


def test_it_keeps_every_promise() -> None:
    learner = make(ResNet(2, size=16), memory=6, replay=4, rotations=1, close_pairs=1)
    results = prol.check_learner(learner)
    assert [result.name for result in results if result.outcome != "passed"] == ["nothing_outlives_its_step"]


def test_constants_are_those_of_its_authors(small_resnet: ResNet) -> None:
    o = prol.create("onpro", small_resnet).options
    assert (o.lr, o.temperature, o.prototype_temperature, o.scale, o.rotations) == (5e-4, 0.07, 0.5, 1.0, 16)
    assert (o.close_pairs, o.close_beta, o.mix_chance, o.mix_most) == (7, 0.4, 0.2, 0.6)
