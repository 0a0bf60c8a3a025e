"""The contrast of two groups, entropies of predictions, and which sample of a class has to go."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.engine.similarity import unit
from prol.methods.replay.esrm import (
    above_median,
    cross_contrast,
    prediction_entropy,
    softened_divergence,
    surest_replaced,
)
from prol.methods.replay.sample_memory import EMPTY, SampleMemory
from prol.state import State


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_contrast(a: list, b: list, a_rows: list[int], b_rows: list[int]) -> float:
    """Over groups as lists."""
    if not a or not b:
        return 0.0
    total = 0.0
    for one, row in zip(a, a_rows, strict=True):
        scores = [math.exp(float(one @ other) / 0.07) for other in b]
        for score, other_row in zip(scores, b_rows, strict=True):
            if row == other_row:
                total += math.log(score / sum(scores))
    return -total / (len(a) * len(b))


@pytest.mark.parametrize("in_a", [[True, False, True, False, True], [True] * 5, [False] * 5])
@pytest.mark.parametrize("in_b", [[False, True, True, True], [True] * 4, [False] * 4])
def test_it_is_the_mean_over_all_pairs_of_two_groups(in_a: list[bool], in_b: list[bool]) -> None:
    a, b = unit(random(5, 3, seed=0)), unit(random(4, 3, seed=1))
    rows, other_rows = [0, 1, 0, 2, 1], [0, 0, 1, 2]
    same = torch.tensor(rows).unsqueeze(1) == torch.tensor(other_rows)
    found = cross_contrast(a, b, same, torch.tensor(in_a), torch.tensor(in_b))
    chosen, others = ([i for i, inside in enumerate(group) if inside] for group in (in_a, in_b))
    expected = slow_contrast(
        [a[i] for i in chosen], [b[j] for j in others], [rows[i] for i in chosen], [other_rows[j] for j in others]
    )
    assert float(found) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_empty_group_gives_no_gradient_and_no_nan(dtype: torch.dtype) -> None:
    a = unit(random(3, 4, seed=2)).to(dtype).requires_grad_()
    nobody, everybody = torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)
    for groups in ((nobody, everybody), (everybody, nobody)):
        loss = cross_contrast(a, a, torch.ones(3, 3, dtype=torch.bool), *groups)
        assert float(loss.detach()) == 0
        assert not torch.autograd.grad(loss, a)[0].any()


def test_the_gradient_reaches_both_groups_but_nobody_outside() -> None:
    a, b = random(3, 4, seed=3).requires_grad_(), random(3, 4, seed=4).requires_grad_()
    inside = torch.tensor([True, True, False])
    loss = cross_contrast(unit(a), unit(b), torch.ones(3, 3, dtype=torch.bool), inside, inside)
    for gradient in torch.autograd.grad(loss, [a, b]):
        assert gradient.any(1).tolist() == inside.tolist()


def test_the_divergence_is_that_of_softened_predictions_times_their_temperature_squared() -> None:
    logits, others = random(3, 5, seed=5) * 3, random(3, 5, seed=6) * 3
    expected = 0.0
    for one, other in zip(logits, others, strict=True):
        p, q = ([math.exp(float(x) / 4) for x in row] for row in (one, other))
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        expected += 16 * sum(x * math.log(x / y) for x, y in zip(p, q, strict=True)) / 3
    assert float(softened_divergence(logits, others, 4.0)) == pytest.approx(expected, abs=1e-12)
    assert float(softened_divergence(logits, logits, 4.0)) == pytest.approx(0, abs=1e-15)


def test_the_entropy_is_minus_the_sum_of_p_log_p() -> None:
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for row, entropy in zip(logits, prediction_entropy(logits), strict=True):
        p = [math.exp(float(x)) / sum(math.exp(float(y)) for y in row) for x in row]
        assert float(entropy) == pytest.approx(-sum(x * math.log(x) for x in p), abs=1e-12)


def test_a_prediction_beyond_doubt_has_no_entropy_and_is_not_nan() -> None:
    assert prediction_entropy(torch.tensor([[0.0, 1e6], [1e6, 0.0]])).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [([3.0, 1, 2], [True, False, False]), ([4.0, 1, 2, 3], [True, False, False, True]), ([1.0], [False])],
)
def test_half_of_a_chunk_is_above_its_median(values: list[float], expected: list[bool]) -> None:
    assert above_median(torch.tensor(values)).tolist() == expected


def test_equal_values_are_not_above_their_median() -> None:
    assert not above_median(torch.ones(4)).any()


Sample = tuple[int, int, float]

"""Its number, its class row and its entropy."""


def slow_replacement(stored: list[Sample | None], slots: list[int], new: list[Sample]) -> list[Sample]:
    """On the host, one after the other: the slot's class loses its sample of least entropy, the new one comes in."""
    stored = list(stored)
    for slot, sample in zip(slots, new, strict=True):
        if slot == len(stored):
            continue
        lying = stored[slot]
        if lying is None:
            stored[slot] = sample
            continue
        members = [other for other in stored if other is not None and other[1] == lying[1]]
        stored[stored.index(min(members, key=lambda member: member[2]))] = sample
        # As the reservoir sees it, the slot it named holds the new sample from now on.
        place = stored.index(sample)
        stored[place], stored[slot] = stored[slot], stored[place]
    return sorted(sample for sample in stored if sample is not None)


def fast_replacement(stored: list[Sample | None], slots: list[int], new: list[Sample]) -> tuple[list[Sample], Tensor]:
    """The same by `surest_replaced` and `SampleMemory.move`; images say a sample's number."""
    memory = SampleMemory(State(), len(stored), 1)
    memory.add_payload("entropy", torch.float64)
    rows = torch.full((len(stored),), EMPTY)
    for slot, sample in enumerate(stored):
        if sample is not None:
            memory.images[slot], rows[slot], memory.payload["entropy"][slot] = sample[0], sample[1], sample[2]
    numbers, classes, entropy = (list(column) for column in zip(*new, strict=True))
    chunk = torch.tensor(numbers, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 1, 1)
    given = {"entropy": torch.tensor(entropy, dtype=torch.float64)}
    written, source = surest_replaced(
        memory.payload["entropy"], rows, torch.tensor(slots), torch.tensor(classes), given["entropy"]
    )
    memory.rows[:-1] = rows
    memory.move(written, source, torch.tensor(classes), chunk, given, torch.tensor(True))
    for slot, row in zip(slots, classes, strict=True):
        if slot < len(stored):
            rows[slot] = row
    assert memory.rows.tolist() == [*rows.tolist(), EMPTY]
    left = [
        (int(memory.images[slot, 0, 0, 0]), int(rows[slot]), float(memory.payload["entropy"][slot]))
        for slot in range(len(stored))
        if rows[slot] != EMPTY
    ]
    return sorted(left), memory.images[-1]


@st.composite
def memories(draw: st.DrawFn) -> tuple[list[Sample | None], list[int], list[Sample]]:
    """A memory that is full or partly so, and a chunk whose slots and classes often meet."""
    capacity, filled = draw(st.integers(1, 6)), draw(st.integers(0, 6))
    filled, count = min(filled, capacity), draw(st.integers(1, 7))
    entropies = draw(st.permutations(range(filled + count)))
    rows = draw(st.lists(st.integers(0, 2), min_size=filled + count, max_size=filled + count))
    samples = [(number + 1, rows[number], float(entropies[number])) for number in range(filled + count)]
    slots, there = [], filled
    for _ in range(count):
        slots.append(there if there < capacity else draw(st.integers(0, capacity)))
        there = max(there, min(slots[-1] + 1, capacity))
    return [*samples[:filled], *[None] * (capacity - filled)], slots, samples[filled:]


@settings(max_examples=200, deadline=None)
@given(memories())
def test_what_is_stored_is_what_a_loop_on_the_host_stores(
    case: tuple[list[Sample | None], list[int], list[Sample]],
) -> None:
    fast, scrap = fast_replacement(*case)
    assert fast == slow_replacement(*case)
    assert not scrap.any()


def test_two_new_samples_in_one_slot_both_count() -> None:
    stored: list[Sample | None] = [(1, 0, 0.9), (2, 0, 0.1), (3, 1, 0.5)]
    # The first drives out sample 2 of its class 0; the second, named the slot where the first lies, the surest of 1.
    fast, _ = fast_replacement(stored, [0, 0], [(4, 1, 0.7), (5, 2, 0.2)])
    assert [sample[0] for sample in fast] == [1, 4, 5]


def test_a_step_that_is_not_valid_moves_nothing() -> None:
    memory = SampleMemory(State(), 2, 1)
    memory.add_payload("entropy", torch.float64)
    memory.images[:2], memory.payload["entropy"][:2] = 7, 0.5
    bad = torch.full((1,), torch.nan, dtype=torch.float64)
    slots, chunk = torch.tensor([0]), torch.full((1, 3, 1, 1), 9, dtype=torch.uint8)
    written, source = surest_replaced(memory.payload["entropy"], torch.tensor([0, 0]), slots, torch.tensor([1]), bad)
    memory.move(written, source, torch.tensor([1]), chunk, {"entropy": bad}, torch.tensor(False))
    assert memory.images[:2].unique().tolist() == [7]
    assert memory.payload["entropy"].tolist() == [0.5, 0.5, 0]
