"""GSA: what it draws, its loss against loops, and the sums it stores of each class."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import prol
from methods.small_streams import pictures, tensors
from prol.backbones import ResNet
from prol.methods.replay.gsa import (
    GSA,
    again,
    class_weights,
    new_share,
    probability_sums,
    weighted_cross_entropy,
)
from prol.methods.replay.learner import current_cross_entropy
from prol.methods.replay.views import LARGE_CROP_GREY, apply_views, halves_mirrored

SMALL = {"memory": 12, "replay": 8, "current": 3}


def make(backbone: ResNet, **options: Any) -> GSA:
    learner = prol.create("gsa", backbone, **{**SMALL, **options})
    assert isinstance(learner, GSA)
    return learner


def in_second_task(backbone: ResNet, steps: int = 2, **options: Any) -> GSA:
    """Classes 0 and 1 in the first task; 2 and 3 in the second, where 0 comes again."""
    learner = make(backbone, **options)
    for kinds in ([0, 1, 0, 1], [2, 3, 0, 2]):
        learner.boundary()
        for step in range(steps):
            learner.learn(pictures(kinds, step), kinds)
    return learner


@given(st.integers(1, 64), st.integers(1, 20), st.integers(0, 30), st.integers(0, 30))
def test_the_new_part_is_the_share_of_new_classes_and_never_nothing(
    replay: int, chunk: int, new: int, old: int
) -> None:
    if new + old == 0:
        return
    share = new_share(replay, chunk, new, new + old)
    assert 1 <= share <= replay
    if not new:
        assert share == min(chunk, replay)
    elif replay * new >= new + old:
        assert abs(share - replay * new / (new + old)) <= 0.5


def test_members_come_again_where_there_are_too_few() -> None:
    assert again(torch.tensor([5, 7]), 5).tolist() == [5, 7, 5, 7, 5]
    assert again(torch.tensor([5, 7, 9]), 2).tolist() == [5, 7]
    assert again(torch.tensor([], dtype=torch.int64), 0).tolist() == []


def slow_cross_entropy(logits: Tensor, row: int) -> float:
    raised = [math.exp(float(x)) for x in logits]
    return -math.log(raised[row] / sum(raised))


@pytest.mark.parametrize("rows", [[0, 2, 3, 1, 2], [0, 1, 0, 1, 0]])
def test_the_current_task_competes_among_itself_and_old_samples_add_nothing(rows: list[int]) -> None:
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    found = current_cross_entropy(logits, torch.tensor(rows), first_row=2)
    own = [slow_cross_entropy(line[2:], row - 2) for line, row in zip(logits.detach(), rows, strict=True) if row >= 2]
    assert float(found.detach()) == pytest.approx(sum(own) / max(1, len(own)))
    (gradient,) = torch.autograd.grad(found, logits)
    assert not gradient[:, :2].any()
    assert gradient.any(1).tolist() == [row >= 2 for row in rows]


def test_a_draw_holds_old_and_new_in_proportion_and_the_whole_chunk_beside_current_ones(small_resnet: ResNet) -> None:
    learner = in_second_task(small_resnet)
    rows = torch.tensor([2, 3, 3, 2])
    behind = learner.memory.capacity + 1
    for _ in range(5):
        drawn = learner.draw(rows)
        balanced, current = drawn["balanced_rows"].tolist(), drawn["current_rows"].tolist()
        assert (len(balanced), len(current)) == (8, 4 + 3)
        assert all(row < 2 for row in balanced[:4])
        assert (drawn["balanced_places"][:4] < behind).all()
        assert all(row >= 2 for row in balanced[4:])
        assert drawn["current_places"][:4].tolist() == [behind, behind + 1, behind + 2, behind + 3]
        assert current[:4] == rows.tolist()
        assert all(row >= 2 for row in current[4:])
        for name in ("balanced", "current"):
            for place, row in zip(drawn[f"{name}_places"].tolist(), drawn[f"{name}_rows"].tolist(), strict=True):
                assert row == (rows[place - behind] if place >= behind else learner.memory.places.rows[place])


def test_shapes_stay_the_same_through_a_task_however_little_is_kept(small_resnet: ResNet) -> None:
    learner = make(small_resnet, memory=3)
    shapes = set()
    for kinds in ([0, 1], [2, 3]):
        learner.boundary(kinds)
        for step in range(5):
            drawn = learner.draw(torch.tensor(kinds))
            shapes.add(tuple(tuple(tensor.shape) for tensor in drawn.values()))
            learner.learn(pictures(kinds, step), kinds)
    assert len(shapes) == 1


def test_a_task_that_brings_no_class_trains_on_its_chunk_all_the_same(small_resnet: ResNet) -> None:
    learner = in_second_task(small_resnet)
    learner.boundary()
    drawn = learner.draw(torch.tensor([0, 1]))
    assert set(drawn["balanced_places"][-2:].tolist()) == {13, 14}
    learner.learn(pictures([0, 1]), [0, 1])
    assert set(learner.report()) == {"balanced", "total"}


@pytest.mark.parametrize("steps", [2, 6])
def test_the_total_and_the_sums_are_those_of_a_loop(small_resnet: ResNet, steps: int) -> None:
    learner = in_second_task(small_resnet, steps)
    kinds = [3, 0, 2, 2]
    images = torch.stack([*small_resnet.read(pictures(kinds, 9))]).double() / 255
    rows = torch.tensor([learner.row_of[kind] for kind in kinds])
    sums = learner.sums.rows.clone()
    with torch.no_grad():
        drawn = learner.draw(rows)
        seen: dict[str, Tensor] = {}
        everything = torch.cat([learner.memory.images.double() / 255, images])
        for name in ("current", "balanced"):
            views = apply_views(LARGE_CROP_GREY, everything[drawn[f"{name}_places"]], drawn[f"{name}_views"])
            doubled = torch.cat([views, torch.stack([halves_mirrored(view) for view in views])])
            seen[name] = learner.logits(learner.features(doubled, "batch"))
        balanced = drawn["balanced_rows"].tolist() * 2
        for logits, row in zip(seen["balanced"], balanced, strict=True):
            for other, p in enumerate(logits.softmax(0).tolist()):
                sums[other, 1 if other == row else 2] += p
            sums[row, 0] += 1
        a = [1.0 if steps < 5 else float((n - own) / others) for n, own, others in sums]
        weights = [2 / (1 + math.exp(1 - ratio)) for ratio in a]
        terms = [weights[r] * slow_cross_entropy(line, r) for line, r in zip(seen["balanced"], balanced, strict=True)]
        own = [
            slow_cross_entropy(line[2:], row - 2)
            for line, row in zip(seen["current"], drawn["current_rows"].tolist() * 2, strict=True)
            if row >= 2
        ]
        values, _ = learner.losses(images, rows, drawn)
    assert float(values["total"]) == pytest.approx(2 * sum(terms) / len(terms) + sum(own) / len(own), rel=1e-9)
    assert torch.allclose(learner.sums.rows, sums, atol=1e-9)


def test_running_statistics_move_by_the_current_pass_and_then_by_the_balanced_one(small_resnet: ResNet) -> None:
    learner = in_second_task(small_resnet)
    twin = learner.clone()
    kinds = [2, 3, 3, 2]
    images = torch.stack([*small_resnet.read(pictures(kinds, 9))]).double() / 255
    drawn = twin.draw(torch.tensor([twin.row_of[kind] for kind in kinds]))
    with torch.no_grad():
        twin._seen("current", images, drawn)
        twin._seen("balanced", images, drawn)
    learner.learn(pictures(kinds, 9), kinds)
    for name, tensor in learner.running().items():
        assert torch.allclose(tensor, twin.running()[name], atol=1e-12), name


def test_sums_go_with_a_class_and_are_added_when_two_become_one(small_resnet: ResNet) -> None:
    learner = in_second_task(small_resnet)
    before = tensors(learner)["sums"]
    learner.remove_class(1)
    assert torch.equal(tensors(learner)["sums"], before[[0, 2, 3]])
    learner.merge_classes(3, 2)
    assert torch.equal(tensors(learner)["sums"], torch.stack([before[0], before[2] + before[3]]))
    learner.learn(pictures([0, 2]), [0, 2])


def test_sums_are_counted_as_statistics(small_resnet: ResNet) -> None:
    learner = in_second_task(small_resnet)
    running = sum(tensor.numel() for tensor in learner.running().values())
    assert learner.footprint().statistics_stored.count == running + 4 + 4 * 3


LOGITS = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2

ROWS = [0, 1, 1, 2, 0, 1]


def probabilities(row: torch.Tensor) -> list[float]:
    raised = [math.exp(float(x)) for x in row]
    return [x / sum(raised) for x in raised]


def test_sums_are_over_own_samples_and_those_of_others() -> None:
    expected = [[0.0, 0.0, 0.0] for _ in range(4)]
    for logits, row in zip(LOGITS, ROWS, strict=True):
        for other, p in enumerate(probabilities(logits)):
            expected[other][1 if other == row else 2] += p
        expected[row][0] += 1
    assert torch.allclose(probability_sums(LOGITS, torch.tensor(ROWS)), torch.tensor(expected, dtype=torch.float64))


def test_a_class_pulled_as_much_as_pushed_weighs_one_and_one_pushed_more_weighs_less() -> None:
    sums = torch.tensor([[10, 8, 2], [10, 9, 4], [10, 2, 4]], dtype=torch.float64)
    expected = [2 / (1 + math.exp(1 - a)) for a in (1.0, 0.25, 2.0)]
    assert class_weights(sums).tolist() == pytest.approx(expected)
    assert expected[1] < expected[0] == 1 < expected[2]


def test_a_class_that_was_never_pushed_weighs_one() -> None:
    assert class_weights(torch.tensor([[0, 0, 0], [5, 1, 0]], dtype=torch.float64)).tolist() == [1, 1]


def test_the_loss_is_weighted_by_the_class_and_divided_by_the_number_of_samples() -> None:
    weights = torch.tensor([0.5, 1.5, 1.0, 1.0], dtype=torch.float64)
    expected = -sum(
        float(weights[row]) * math.log(probabilities(logits)[row]) for logits, row in zip(LOGITS, ROWS, strict=True)
    ) / len(ROWS)
    assert float(weighted_cross_entropy(LOGITS, torch.tensor(ROWS), weights)) == pytest.approx(expected)
