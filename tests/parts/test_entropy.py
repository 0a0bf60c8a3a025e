"""Entropies of predictions, and which sample of a class has to go."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from prol.methods.replay.entropy import above_median, prediction_entropy, surest_replaced
from torch import Tensor

from prol.methods.replay.sample_memory import EMPTY, SampleMemory


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


def slow_replacement(kept: list[Sample | None], slots: list[int], new: list[Sample]) -> list[Sample]:
    """On the host, one after the other: the slot's class loses its sample of least entropy, the new one comes in."""
    kept = list(kept)
    for slot, sample in zip(slots, new, strict=True):
        if slot == len(kept):
            continue
        lying = kept[slot]
        if lying is None:
            kept[slot] = sample
            continue
        members = [other for other in kept if other is not None and other[1] == lying[1]]
        kept[kept.index(min(members, key=lambda member: member[2]))] = sample
        # As the reservoir sees it, the slot it named holds the new sample from now on.
        place = kept.index(sample)
        kept[place], kept[slot] = kept[slot], kept[place]
    return sorted(sample for sample in kept if sample is not None)


def fast_replacement(kept: list[Sample | None], slots: list[int], new: list[Sample]) -> tuple[list[Sample], Tensor]:
    """The same by `surest_replaced` and `SampleMemory.move`; images say a sample's number."""
    memory = SampleMemory(len(kept), 1, torch.device("cpu"))
    memory.add_payload("entropy", (), torch.float64)
    rows = torch.full((len(kept),), EMPTY)
    for slot, sample in enumerate(kept):
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
        if slot < len(kept):
            rows[slot] = row
    assert memory.rows.tolist() == [*rows.tolist(), EMPTY]
    left = [
        (int(memory.images[slot, 0, 0, 0]), int(rows[slot]), float(memory.payload["entropy"][slot]))
        for slot in range(len(kept))
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
def test_what_is_kept_is_what_a_loop_on_the_host_keeps(
    case: tuple[list[Sample | None], list[int], list[Sample]],
) -> None:
    fast, scrap = fast_replacement(*case)
    assert fast == slow_replacement(*case)
    assert not scrap.any()


def test_two_new_samples_in_one_slot_both_count() -> None:
    kept: list[Sample | None] = [(1, 0, 0.9), (2, 0, 0.1), (3, 1, 0.5)]
    # The first drives out sample 2 of its class 0; the second, named the slot where the first lies, the surest of 1.
    fast, _ = fast_replacement(kept, [0, 0], [(4, 1, 0.7), (5, 2, 0.2)])
    assert [sample[0] for sample in fast] == [1, 4, 5]


def test_a_step_that_is_not_valid_moves_nothing() -> None:
    memory = SampleMemory(2, 1, torch.device("cpu"))
    memory.add_payload("entropy", (), torch.float64)
    memory.images[:2], memory.payload["entropy"][:2] = 7, 0.5
    bad = torch.full((1,), torch.nan, dtype=torch.float64)
    slots, chunk = torch.tensor([0]), torch.full((1, 3, 1, 1), 9, dtype=torch.uint8)
    written, source = surest_replaced(memory.payload["entropy"], torch.tensor([0, 0]), slots, torch.tensor([1]), bad)
    memory.move(written, source, torch.tensor([1]), chunk, {"entropy": bad}, torch.tensor(False))
    assert memory.images[:2].unique().tolist() == [7]
    assert memory.payload["entropy"].tolist() == [0.5, 0.5, 0]
