"""How PROL+ tunes LayerNorms in its first task, and how what was seen before moves along with the network."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from methods.prol_plus.small_prol_plus import (
    CLASSES,
    TASKS,
    blocks_of,
    learn,
    make,
    norms,
    predictions,
    teach,
)
from methods.small_streams import pictures, tensors
from prol.backbones import ViT, evaluation_input
from prol.learner import Amount
from prol.methods.closed_form.moments import Totals
from prol.methods.prol_plus.learner import MOST_GONE, PROLPlus
from prol.methods.prol_plus.tuning import gone, one_cycle


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def shares(step: int, steps: int) -> float:
    """Of the largest rate, at a step: a quarter of the steps up by a line, the others down by a cosine."""
    first = steps / 4
    return step / first if step < first else 0.5 + 0.5 * math.cos(math.pi * (step - first) / (steps - first))


def test_steps_are_those_of_torchs_adam_at_a_rate_that_rises_and_falls(tiny: ViT) -> None:
    learner, model = make(tiny, adapt_steps=9, adapt_lr=0.01), copy.deepcopy(tiny.model)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("norm" in name)
    weight, bias = torch.zeros(3, tiny.width).double().requires_grad_(), torch.zeros(3).double().requires_grad_()
    trained = [p for p in model.parameters() if p.requires_grad]
    adam = torch.optim.Adam([*trained, weight, bias], lr=1.0)
    for step in range(9):
        images = pictures(CLASSES, seed=step)
        inputs = evaluation_input(tiny.read(images), tiny.preprocessing, tiny.device, tiny.dtype)
        features = model.norm(model.blocks(tiny.embed(inputs)))[:, 0]
        loss = F.cross_entropy(F.linear(features, weight, bias), torch.tensor([0, 1, 2, 0, 1, 2]))
        adam.zero_grad()
        loss.backward()
        for group in adam.param_groups:
            group["lr"] = 0.01 * shares(step, 9)
        adam.step()
        learner.learn(images, CLASSES)
        report = learner.report()
        assert report["adapt"] == pytest.approx(loss.item(), rel=1e-9)
        assert report["rate"] == pytest.approx(0.01 * shares(step, 9))
    expected = {f"tuning/norm/{name}": p.data for name, p in model.named_parameters() if p.requires_grad}
    assert norms(learner).keys() == expected.keys()
    for name, tensor in norms(learner).items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("adapt_steps", [3, 5])
def test_tuning_stops_after_its_steps_and_the_layer_norms_stay(tiny: ViT, adapt_steps: int) -> None:
    learner = make(tiny, adapt_steps=adapt_steps)
    for step in range(adapt_steps):
        assert not learner.tuning.over
        before = norms(learner)
        learn(learner, 1, first=step)
        moved = [not torch.equal(before[name], tensor) for name, tensor in norms(learner).items()]
        assert all(moved) if step > 1 else not any(moved)  # the first step has no rate, the second a head of zeros
    frozen = norms(learner)
    assert learner.footprint().trained_now == Amount(0, 0)
    assert learner.tuning.over
    learn(learner, 3, first=adapt_steps)
    assert "adapt" not in learner.report()
    learner.boundary(TASKS[1])
    learn(learner, 3, TASKS[1] * 2)
    assert same(frozen, norms(learner))
    assert predictions(learner) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("announced", [True, False])
def test_tuning_stops_at_the_first_boundary_after_a_chunk(tiny: ViT, announced: bool) -> None:
    learner = make(tiny)
    if announced:
        learner.boundary(TASKS[0])
    learn(learner, 3)
    tuned = norms(learner)
    assert not any(torch.equal(p, tuned[f"tuning/norm/{name}"]) for name, p in tiny.fork("norms").trained().items())
    assert learner.footprint().trained_now.count == sum(t.numel() for t in tuned.values()) + 3 * (tiny.width + 1)
    learner.boundary(TASKS[1])
    learn(learner, 3, TASKS[1] * 2)
    assert same(tuned, norms(learner))
    assert learner.footprint().trained_now == Amount(0, 0)
    assert all(t.numel() == 0 for name, t in tensors(learner).items() if name.startswith("tuning/head/"))
    assert not any(name.startswith("tuning/adam/") and t.numel() > 1 for name, t in tensors(learner).items())
    learner.boundary()
    learn(learner, 2)
    assert same(tuned, norms(learner))
    assert learner.report() == {}


@pytest.mark.parametrize("chunks", [2, 60])
def test_an_unseen_class_joins_the_tuning_however_late(tiny: ViT, chunks: int) -> None:
    learner = learn(make(tiny), chunks)
    before = norms(learner)
    learn(learner, 1, [0, 3])
    assert not same(before, norms(learner))
    assert learner.footprint().trained_now.count == sum(t.numel() for t in before.values()) + 4 * (tiny.width + 1)


def test_chunks_of_one_class_tune_nothing_but_count(tiny: ViT) -> None:
    learner = learn(make(tiny, adapt_steps=6), 3)
    before = norms(learner)
    learn(learner, 2, [1])
    assert same(before, norms(learner))
    assert learner.report() == {}
    assert not learner.tuning.over
    learn(learner, 1, [1])
    assert learner.tuning.over


def test_the_network_stays_while_classes_are_gone_and_moves_again_when_they_return(tiny: ViT) -> None:
    learner = learn(make(tiny), 8)
    learn(learner, 6, TASKS[1] * 2)
    before = norms(learner)
    learn(learner, 2, TASKS[1] * 2)
    assert same(before, norms(learner))
    assert not learner.tuning.over
    learn(learner, 1, [*CLASSES, *TASKS[1]])
    learn(learner, 1, [*CLASSES, *TASKS[1]])
    assert not same(before, norms(learner))


def lost_shares(labels: Tensor) -> list[float]:
    """Before each chunk of 10, the share of all images whose classes count as gone."""
    classes, shares = int(labels.max()) + 1, []
    counts, last = torch.zeros(classes), torch.zeros(classes, dtype=torch.int64)
    for seen in range(0, len(labels), 10):
        shares.append(float(counts[gone(counts, last, seen)].sum()) / max(1, seen))
        rows = labels[seen : seen + 10]
        counts += torch.bincount(rows, minlength=classes)
        last[rows] = seen + len(rows)
    return shares


@pytest.mark.parametrize(("classes", "each"), [(3, 40), (37, 20), (200, 10), (1000, 3)])
def test_hardly_a_class_of_a_mixed_stream_counts_as_gone(classes: int, each: int) -> None:
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(each)[torch.randperm(classes * each, generator=random)]
    shares = lost_shares(labels)
    assert sum(share > MOST_GONE for share in shares) <= 0.02 * len(shares)


def test_five_chunks_after_other_classes_have_come_those_before_count_as_gone() -> None:
    random = torch.Generator().manual_seed(0)
    tasks = [torch.arange(10).repeat_interleave(40)[torch.randperm(400, generator=random)] for _ in range(3)]
    shares = lost_shares(torch.cat([task + 10 * number for number, task in enumerate(tasks)]))
    assert max(shares[20:41]) <= MOST_GONE
    assert min(shares[45:]) > MOST_GONE


@pytest.mark.parametrize("steps", [1, 2, 4, 37, 400])
def test_the_rate_starts_at_zero_is_largest_after_a_quarter_and_ends_near_zero(steps: int) -> None:
    rates = [one_cycle(step / steps) for step in range(steps + 1)]
    assert rates == pytest.approx([shares(step, steps) for step in range(steps + 1)], abs=1e-12)
    top = rates.index(max(rates))
    assert rates[0] == 0
    assert rates[-1] == pytest.approx(0, abs=1e-12)
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    if steps % 4 == 0:
        assert (top, rates[top]) == (steps // 4, 1)


def test_a_stream_of_a_few_chunks_hardly_moves_the_network(tiny: ViT) -> None:
    few, many = (learn(make(tiny, adapt_steps=steps), 4) for steps in (400, 8))
    plain = {f"tuning/norm/{name}": p.data for name, p in tiny.fork("norms").trained().items()}
    moves = [max(float((t - plain[name]).abs().max()) for name, t in norms(one).items()) for one in (few, many)]
    assert 0 < moves[0] < 0.05 * moves[1]


def test_without_steps_nothing_is_tuned(tiny: ViT) -> None:
    learner = make(tiny, adapt_steps=0)
    assert learner.tuning.over
    teach(learner)
    assert all(
        torch.equal(p, norms(learner)[f"tuning/norm/{name}"]) for name, p in tiny.fork("norms").trained().items()
    )
    assert learner.report() == {}


def test_the_backbone_itself_is_left_alone(tiny: ViT) -> None:
    before = {name: parameter.clone() for name, parameter in tiny.named_parameters()}
    learner = teach(make(tiny, adapt_lr=0.05))
    assert all(torch.equal(parameter, before[name]) for name, parameter in tiny.named_parameters())
    network = learner.tuning.network
    shared = [name for name, parameter in tiny.named_parameters() if "norm" not in name]
    own = dict(network.named_parameters())
    assert shared
    assert all(own[name].data_ptr() == dict(tiny.named_parameters())[name].data_ptr() for name in shared)


def test_what_was_taken_in_while_tuning_counts_in_full(tiny: ViT) -> None:
    learner = learn(make(tiny, adapt_steps=3), 5)
    assert learner.moments.totals().counts.tolist() == [10, 10, 10]
    assert learner.seen == 30


class Kept:
    """All samples' features, which a learner must not keep; each step moves them by the mean move of its own chunk."""

    def __init__(self, vit: ViT, **options: Any) -> None:
        self.learner = make(vit, adapt_lr=0.05, **options)
        self.x = torch.zeros(0, self.learner.widths.all, dtype=torch.float64)
        self.rows: list[int] = []
        self.moved: list[float] = []

    def seen_now(self, images: Any) -> Tensor:
        """Features of blocks, as the network now gives them."""
        return blocks_of(self.learner.tuning.network, images, 1)

    def embedded(self, blocks: Tensor) -> Tensor:
        """They at one scale, with the random features."""
        learner = self.learner
        assert learner.scale is not None
        linear = (blocks - learner.scale.mean.double()) * learner.scale.inverse.double()
        angles = (
            learner.options.bandwidth * (linear @ learner.layer["weight"].double()) + learner.layer["phase"].double()
        )
        return torch.cat([linear, angles.cos()], dim=1)

    def learn(self, classes: list[int], seed: int) -> None:
        images, learner = pictures(classes, seed=seed), self.learner
        blocks = self.seen_now(images)
        learner.learn(images, classes)
        before, after = (self.embedded(found) for found in (blocks, self.seen_now(images)))
        move = (after - before).mean(0)
        self.x, self.rows = torch.cat([self.x, before]), [*self.rows, *classes]
        self.moved.append(float(move.abs().max()))
        if learner.options.drift_correction:
            self.x += move

    def expected(self) -> Totals:
        return Totals.of(self.x, torch.tensor(self.rows), len(self.learner.classes))


def close(learner: PROLPlus, expected: Totals) -> None:
    found = learner.moments.totals()
    assert torch.equal(found.counts, expected.counts)
    torch.testing.assert_close(found.sums, expected.sums, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.gram, expected.gram, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("options", [{}, {"features": 0}], ids=str)
def test_all_that_was_seen_moves_as_the_chunk_does_and_stands_once_tuning_is_over(
    tiny: ViT, options: dict[str, Any], carry: bool
) -> None:
    """The chunk itself too: it is taken in as it was before its step."""
    kept = Kept(tiny, adapt_steps=5, drift_correction=carry, **options)
    learner = kept.learner
    for step in range(8):
        kept.learn(CLASSES if step != 3 else [0, 0, 1, 3], seed=step)
        close(learner, kept.expected())
        assert learner.tuning.over == (step >= 4)
    assert max(kept.moved[:2]) < 1e-12  # the first step has no rate, the second a head of zeros
    assert min(kept.moved[2:5]) > 0.05
    assert max(kept.moved[5:]) == 0


def test_drift_correction_makes_much_of_a_difference(tiny: ViT) -> None:
    """Means of classes are then where the network now sees them, and not where it once did."""
    off = []
    for carry in (True, False):
        kept = Kept(tiny, adapt_steps=6, drift_correction=carry)
        for step in range(6):
            kept.learn(CLASSES, seed=step)
        totals = kept.learner.moments.totals()
        now = torch.cat([kept.embedded(kept.seen_now(pictures(CLASSES, seed=step))) for step in range(6)])
        off.append(float((totals.sums.sum(0) / totals.counts.sum() - now.mean(0)).norm()))
    assert off[0] < 0.2 * off[1]


def test_with_the_second_task_nothing_moves_any_more(tiny: ViT) -> None:
    kept = Kept(tiny, adapt_steps=12)
    for number, classes in enumerate(TASKS):
        kept.learner.boundary(classes)
        for step in range(4):
            kept.learn(classes * 2, seed=4 * number + step)
        close(kept.learner, kept.expected())
    assert min(kept.moved[2:4]) > 0.05
    assert max(kept.moved[4:]) == 0


def test_two_images_at_a_time_move_all_the_others_and_one_at_a_time_none(tiny: ViT) -> None:
    pairs, single = Kept(tiny, adapt_steps=8), Kept(tiny, adapt_steps=8)
    for step in range(10):
        pairs.learn([step % 3, (step + 1) % 3], seed=step)
        single.learn([step % 3], seed=step)
        close(pairs.learner, pairs.expected())
        close(single.learner, single.expected())
    assert max(pairs.moved[:8]) > 0.05
    assert max(single.moved) == 0
