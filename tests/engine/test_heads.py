"""Heads that grow with the classes: one LayerNorm + Linear per task, or one linear map over all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from prol.classes import AGAINST_IT, AVERAGED, KEPT_ROW
from prol.engine.adam import Adam, part_gradients
from prol.engine.heads import CAPACITY, LinearHead, TaskHeads, fold
from prol.state import State

WIDTH = 6
SIZES = [3, 1, 4]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def empty(width: int = WIDTH, all_live: bool = False) -> tuple[TaskHeads, State]:
    state = State()
    return TaskHeads(state, width, torch.float64, torch.Generator().manual_seed(0), all_live), state


def make(sizes: list[int] = SIZES, all_live: bool = False) -> TaskHeads:
    return made(sizes, all_live)[0]


def made(sizes: list[int] = SIZES, all_live: bool = False) -> tuple[TaskHeads, State]:
    """Heads whose every number is far from its initial value; each is complete before the next one begins."""
    heads, state = empty(all_live=all_live)
    for task, size in enumerate(sizes):
        heads.begin_head()
        state.add_classes(size)
        first = heads.first_rows[-1]
        heads.weight.rows[first:] = drawn(size, WIDTH, seed=task)
        heads.bias.rows[first:] = drawn(size, seed=task + 10)
        heads.scale.rows[task] = drawn(WIDTH, seed=task + 20)
        heads.shift.rows[task] = drawn(WIDTH, seed=task + 30)
    return heads, state


def one_by_one(heads: TaskHeads, features: Tensor, sizes: list[int] = SIZES) -> Tensor:
    """Each head by itself: LayerNorm with its own affine part (eps 1e-5), then Linear."""
    answers, first = [], 0
    for task, size in enumerate(sizes):
        rows = slice(first, first + size)
        normed = F.layer_norm(features, (WIDTH,), heads.scale.rows[task], heads.shift.rows[task], eps=1e-5)
        answers.append(F.linear(normed, heads.weight.rows[rows], heads.bias.rows[rows]))
        first += size
    return torch.cat(answers, dim=1)


def test_a_folded_affine_part_gives_the_same_answers() -> None:
    normed, weight, bias, scale, shift = drawn(5, 4), drawn(3, 4, seed=1), drawn(3), drawn(1, 4, seed=2), drawn(1, 4)
    expected = F.linear(normed * scale + shift, weight, bias)
    torch.testing.assert_close(F.linear(normed, *fold(weight, bias, scale, shift)), expected)


@pytest.mark.parametrize("all_heads", [False, True])
@pytest.mark.parametrize("sizes", [SIZES, [3, CAPACITY, 20]], ids=["few", "more than the capacity"])
def test_logits_are_those_of_the_heads_one_by_one(sizes: list[int], all_heads: bool) -> None:
    heads, features = make(sizes, all_live=all_heads), drawn(5, WIDTH, seed=9) * 3
    logits = heads.logits(features)
    torch.testing.assert_close(logits, one_by_one(heads, features, sizes), rtol=0, atol=1e-12)


def test_the_norms_epsilon_is_that_of_the_heads_and_not_of_the_backbone() -> None:
    heads, tiny_features = make(), drawn(5, WIDTH, seed=9) * 1e-3
    logits = heads.logits(tiny_features)
    torch.testing.assert_close(logits, one_by_one(heads, tiny_features), rtol=0, atol=1e-12)


@pytest.mark.parametrize("all_live", [False, True])
def test_loaded_heads_predict_like_those_saved(all_live: bool) -> None:
    (heads, state), features = made(all_live=all_live), drawn(5, WIDTH, seed=9)
    before = heads.logits(features)
    other, loaded = empty(all_live=all_live)
    for _ in range(2):  # also over something loaded before
        loaded.load(state.snapshot()[0], state.saved_values(), sum(SIZES))
        assert torch.equal(other.logits(features), before)
        assert other.first_rows == heads.first_rows


@pytest.mark.parametrize("all_live", [False, True])
def test_a_head_that_is_rolled_back_leaves_no_trace(all_live: bool) -> None:
    (heads, state), features = made(all_live=all_live), drawn(5, WIDTH, seed=9)
    before, layout = heads.logits(features), heads.layout()
    record = state.record()
    heads.begin_head()
    state.add_classes(3)
    assert heads.logits(features).shape == (5, 11)
    state.roll_back(record)
    assert torch.equal(heads.logits(features), before)
    assert heads.first_rows == [0, 3, 4]
    assert heads.layout() == layout


def test_a_removed_class_moves_the_rows_at_which_heads_begin() -> None:
    _, state = made()
    contents, values = state.contents(3), state.saved_values()
    contents.move_rows(values, 3)
    assert values == {"first_rows": [0, 3, 3]}
    assert contents.first_moment == 4


def train(heads: TaskHeads) -> None:
    adam, rows = Adam(State()), torch.tensor([0, 4, 7, 5])
    for step in range(3):
        parts = heads.trained()
        logits = heads.logits(drawn(4, WIDTH, seed=step), parts)
        gradients = part_gradients(F.cross_entropy(logits, rows), parts)
        adam.begin_step()
        adam.update_all(parts, gradients, 0.1)


def test_training_moves_the_last_head_and_leaves_the_old_ones_to_the_bit() -> None:
    heads, features = make(), drawn(5, WIDTH, seed=9)
    before = {name: table.rows.clone() for name, table in heads.tables().items()}
    answers = heads.logits(features)
    train(heads)
    for name, table in heads.tables().items():
        kept = 2 if name in ("scale", "shift") else 4
        assert torch.equal(table.rows[:kept], before[name][:kept]), name
        assert (table.rows[kept:] != before[name][kept:]).all(), name
    after = heads.logits(features)
    assert torch.equal(after[:, :4], answers[:, :4])
    torch.testing.assert_close(after, one_by_one(heads, features), rtol=0, atol=1e-12)


def test_with_all_heads_live_training_moves_every_head() -> None:
    heads, features = make(all_live=True), drawn(5, WIDTH, seed=9)
    before = {name: table.rows.clone() for name, table in heads.tables().items()}
    train(heads)
    for name, table in heads.tables().items():
        assert (table.rows != before[name]).all(), name
    torch.testing.assert_close(heads.logits(features), one_by_one(heads, features), rtol=0, atol=1e-12)


def test_classes_may_join_the_current_head() -> None:
    (heads, state), features = made([3, 1]), drawn(5, WIDTH, seed=9)
    state.add_classes(2)
    logits = heads.logits(features)
    assert heads.first_rows == [0, 3]
    torch.testing.assert_close(logits, one_by_one(heads, features, [3, 3]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("all_heads", [False, True])
def test_an_empty_head_answers_nothing_of_its_own(all_heads: bool) -> None:
    (heads, state), features = made([3, 1], all_live=all_heads), drawn(5, WIDTH, seed=9)
    expected = one_by_one(heads, features, [3, 1])
    heads.begin_head()
    torch.testing.assert_close(heads.logits(features), expected, rtol=0, atol=1e-12)
    heads.begin_head()
    state.add_classes(1)
    logits = heads.logits(features)
    assert logits.shape == (5, 5)
    torch.testing.assert_close(logits[:, :4], expected, rtol=0, atol=1e-12)


def test_a_new_head_starts_with_small_weights_and_a_plain_norm() -> None:
    heads, state = empty(64)
    heads.begin_head()
    state.add_classes(50)
    assert abs(heads.weight.rows.std() - 0.02) < 0.001
    assert abs(heads.weight.rows.mean()) < 0.002
    assert torch.equal(heads.bias.rows, torch.zeros(50).double())
    assert torch.equal(heads.scale.rows, torch.ones(1, 64).double())
    assert torch.equal(heads.shift.rows, torch.zeros(1, 64).double())


def test_a_window_that_was_wide_lies_where_it_was_when_it_is_narrow_again() -> None:
    (heads, state), seen = empty(), []
    for classes in (3, 40, 3):
        heads.begin_head()
        state.add_classes(classes)
        seen.append((len(heads._offsets), heads._offsets.data_ptr()))
    assert seen[0] == seen[2] != seen[1]


# One linear map over all classes


def linear(*sizes: int, random: torch.Generator | None = None, **options: Any) -> tuple[LinearHead, State]:
    state = State()
    head = LinearHead(state, WIDTH, torch.float64, random=random or torch.Generator().manual_seed(0), **options)
    for size in sizes:
        state.add_classes(size)
    return head, state


def test_it_begins_without_classes() -> None:
    assert linear()[0].logits(drawn(4, WIDTH)).shape == (4, 0)


def test_new_rows_are_zero_and_draw_nothing_unless_a_deviation_is_given() -> None:
    random = torch.Generator().manual_seed(0)
    before = random.get_state()
    head, _ = linear(3, random=random)
    assert torch.equal(head.weight.rows, torch.zeros(3, WIDTH).double())
    assert torch.equal(head.bias.rows, torch.zeros(3).double())
    assert torch.equal(random.get_state(), before)


def test_a_deviation_makes_weights_normal_and_leaves_biases_zero() -> None:
    head, _ = linear(2000, deviation=0.02)
    assert abs(head.weight.rows.std() - 0.02) < 0.001
    assert torch.equal(head.bias.rows, torch.zeros(2000).double())


def test_rows_that_join_leave_the_others_as_they_are() -> None:
    head, state = linear(3, deviation=1.0)
    before = head.weight.rows.clone()
    state.add_classes(4)
    assert torch.equal(head.weight.rows[:3], before)
    assert head.logits(drawn(2, WIDTH)).shape == (2, 7)


def test_logits_are_those_of_a_linear_layer_with_and_without_leaves() -> None:
    (head, _), features = linear(3, 2, deviation=1.0), drawn(4, WIDTH, seed=1)
    head.bias.rows[:] = drawn(5, seed=2)
    expected = F.linear(features, head.weight.rows, head.bias.rows)
    assert torch.equal(head.logits(features), expected)
    assert torch.equal(head.logits(features, head.trained()), expected)


def test_rows_without_a_gradient_stay_to_the_bit() -> None:
    (head, _), adam = linear(3, 2, deviation=1.0), Adam(State())
    before = head.weight.rows.clone()
    for step in range(3):
        parts = head.trained()
        gradients = part_gradients(head.logits(drawn(4, WIDTH, seed=step), parts)[:, 3:].square().sum(), parts)
        adam.begin_step()
        adam.update_all(parts, gradients, 0.1)
    assert torch.equal(head.weight.rows[:3], before[:3])
    assert (head.weight.rows[3:] != before[3:]).all()


@pytest.mark.parametrize(
    ("options", "removed", "merged"),
    [
        ({}, (AGAINST_IT,), (AVERAGED,)),
        ({"combine": "keep"}, (AGAINST_IT,), (KEPT_ROW,)),
        ({"stored": False}, (), ()),
    ],
)
def test_a_linear_head_says_what_a_removed_or_merged_class_leaves(
    options: dict[str, Any], removed: tuple[str, ...], merged: tuple[str, ...]
) -> None:
    contents = linear(3, **options)[1].contents(1)
    assert (contents.traces, contents.merged) == (removed, merged)
