"""OnPro: its losses against the formulas image by image, class means, and mixtures."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from test_ocm import chunk, slow_loss, turned
from torch import Tensor

import prol
from methods.small_streams import pictures
from prol.backbones import ResNet
from prol.methods.replay.onpro import (
    OnPro,
    chosen_pairs,
    class_means,
    pair_chances,
    prototype_contrast,
)
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
        images, rows = self.learner.recalled(self.drawn["mean_slots"]), self.drawn["mean_rows"].tolist()
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
    values, _ = learner.losses(images, rows, drawn)
    assert values.keys() == expected.keys() | {"total"}
    for name, value in expected.items():
        assert float(values[name].detach()) == pytest.approx(value), name
    assert float(values["total"].detach()) == pytest.approx(sum(expected.values()))


def test_the_first_chunk_is_learnt_alone(small_resnet: ResNet) -> None:
    learner = make(small_resnet)
    learner.boundary([0, 1, 2])
    require_losses(learner, [0, 2, 2], learner.draw(torch.tensor([0, 2, 2])), {})
    assert not bool(learner.means.rows.any())


@pytest.mark.parametrize("later", [False, True], ids=["in the first task", "as a later task begins"])
def test_the_memory_is_contrasted_from_then_on_and_gives_the_labels_of_later_tasks(
    small_resnet: ResNet, later: bool
) -> None:
    learner = teach(make(small_resnet), 1)
    if later:
        learner.boundary([3, 4])
    kinds = [3, 4] if later else [0, 2, 2]
    drawn = learner.draw(torch.tensor(kinds))
    slow, recalled, rows = Slow(learner, drawn), learner.recalled(drawn["slots"]), drawn["memory_rows"]
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
    drawn = learner.draw(torch.tensor([3, 4]))
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
    stored = learner.memory.images.double() / 255
    images = torch.stack([(1 - w) * stored[one] + w * stored[two] for one, two, w in mixed])
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
    stored = learner.memory.rows_in(torch.arange(5)).tolist()
    assert there.tolist() == [row in stored for row in range(6)]
    for row in range(6):
        drawn = learner.memory.rows_in(slots[row]).tolist()
        assert set(drawn) == ({row} if row in stored else set(stored))
        if row in stored:
            assert set(slots[row].tolist()) == {slot for slot, held in enumerate(stored) if held == row}


def test_its_gradient_reaches_every_weight(small_resnet: ResNet) -> None:
    learner = teach(make(small_resnet), 2)
    images, rows = chunk([3, 4])
    learner.live = [head.trained() for head in learner.heads]
    values, _ = learner.losses(images, rows, learner.draw(rows))
    leaves = [*learner.trained().values(), *(part.leaf for part in learner.live[0].values())]
    assert all(bool(slope.any()) for slope in torch.autograd.grad(values["total"], leaves))


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


@pytest.mark.slow
def test_steps_go_down() -> None:
    learner = make(ResNet(4, size=16), lr=2e-3)
    for kinds in TASKS:
        learner.boundary(kinds)
        totals = []
        for _ in range(20):
            learner.learn(pictures(kinds * 2), kinds * 2)
            totals.append(learner.report()["new"] + learner.report()["labels"])
        assert sum(totals[-5:]) < 0.95 * sum(totals[1:6])


def test_constants_are_those_of_its_authors(small_resnet: ResNet) -> None:
    o = prol.create("onpro", small_resnet).options
    assert (o.lr, o.temperature, o.prototype_temperature, o.scale, o.rotations) == (5e-4, 0.07, 0.5, 1.0, 16)
    assert (o.close_pairs, o.close_beta, o.mix_chance, o.mix_most) == (7, 0.4, 0.2, 0.6)


CLASSES = 5


def unit(count: int, width: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return F.normalize(torch.randn(count, width, generator=random, dtype=torch.float64))


def slow_prototype_loss(plain: Tensor, viewed: Tensor, rows: list[int], temperature: float) -> float:
    kinds = sorted(set(rows))
    means = []
    for z in (plain, viewed):
        for kind in kinds:
            total = sum(z[i] for i, row in enumerate(rows) if row == kind)
            means.append(total / total.norm())
    whole, count = 0.0, len(means)
    for i in range(count):
        others = {j: math.exp(float(means[i] @ means[j]) / temperature) for j in range(count) if j != i}
        whole -= math.log(others[(i + len(kinds)) % count] / sum(others.values()))
    return whole / count


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=8), seed=st.integers(0, 99))
def test_the_loss_is_its_formula_over_the_classes_that_are_there(rows: list[int], seed: int) -> None:
    plain, viewed = unit(len(rows), 6, seed).requires_grad_(), unit(len(rows), 6, seed + 100)
    (one, there), (other, _) = (class_means(z, torch.tensor(rows), CLASSES) for z in (plain, viewed))
    loss = prototype_contrast(one, other, there, 0.5)
    assert there.nonzero().flatten().tolist() == sorted(set(rows))
    assert float(loss.detach()) == pytest.approx(slow_prototype_loss(plain.detach(), viewed, rows, 0.5), abs=1e-9)
    (slope,) = torch.autograd.grad(loss, plain)
    assert bool(slope.isfinite().all())
    assert bool((slope.abs().sum(1) > 0).all()) == (len(set(rows)) > 1)


def test_close_classes_are_paired_more_often() -> None:
    means = F.normalize(torch.tensor([[1.0, 0], [1, 0.1], [0, 1], [-1, 0]], dtype=torch.float64))
    there = torch.tensor([True, True, True, False])
    chances = pair_chances(means, there)
    pairs = [(0, 1), (0, 2), (1, 2)]
    shares = [math.exp(1 / float((means[i] - means[j]).norm())) for i, j in pairs]
    for (i, j), share in zip(pairs, shares, strict=True):
        assert float(chances[i, j] + chances[j, i]) == pytest.approx(share / sum(shares))
    assert float(chances.diagonal().sum()) == float(chances[3].sum()) == float(chances[:, 3].sum()) == 0


def test_means_that_coincide_or_are_not_known_have_finite_chances() -> None:
    means = torch.tensor([[1.0, 0], [1, 0], [0, 0], [0, 0]])
    chances = pair_chances(means, torch.ones(4, dtype=torch.bool))
    assert float(chances.sum()) == pytest.approx(1)
    assert float(chances[0, 1]) == pytest.approx(0.5)
    unknown = pair_chances(means[[0, 2, 3]], torch.ones(3, dtype=torch.bool))
    assert unknown.tolist() == [[0 if i == j else pytest.approx(1 / 6) for j in range(3)] for i in range(3)]


@settings(max_examples=60, deadline=None)
@given(
    shares=st.lists(st.sampled_from([0.0, 1e-12, 0.3, 5.0]), min_size=9, max_size=9).filter(any),
    numbers=st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2),
)
def test_only_pairs_with_a_chance_are_chosen(shares: list[float], numbers: tuple[float, float]) -> None:
    chances = torch.tensor(shares, dtype=torch.float64).view(3, 3)
    first, second = chosen_pairs(chances, torch.tensor([numbers], dtype=torch.float64))
    assert float(chances[first, second]) > 0


def test_pairs_are_chosen_as_often_as_their_chances_say() -> None:
    chances = torch.tensor([[0.0, 0.5, 0.1], [0.1, 0.0, 0.0], [0.05, 0.25, 0.0]], dtype=torch.float64)
    even = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    first, second = chosen_pairs(chances, torch.cartesian_prod(even, even))
    counts = torch.bincount(3 * first + second, minlength=9).view(3, 3) / 200**2
    torch.testing.assert_close(counts.double(), chances, atol=0.005, rtol=0)
