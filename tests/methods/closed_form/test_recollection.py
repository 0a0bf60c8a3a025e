"""What a closed-form classifier is fitted on in each of the four kinds of memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prol.learner import Amount
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.recollection import ClassReservoir, Memory, Recollection
from prol.state import State

FEATURES = torch.randn(20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ROWS = torch.tensor([0, 1] * 5 + [2, 3] * 5)
TASKS = (slice(0, 10), slice(10, 20))


def embed(features: Tensor) -> Tensor:
    return torch.cat([features, features.square()], dim=1)


class Narrow:
    """All that is asked of a backbone here."""

    width, dtype = 4, torch.float64


def make(memory: Memory, twin: bool = False) -> Recollection:
    return Recollection(State(), memory, Narrow(), 8, torch.float64, twin)  # type: ignore[arg-type]


def teach(kept: Recollection, tasks: int = 2, size: int = 3, seed: int = 0) -> Recollection:
    random = torch.Generator().manual_seed(seed)
    for task, part in enumerate(TASKS[:tasks]):
        kept._state.add_classes(2)
        kept.begin_task()
        for start in range(part.start, part.stop, size):
            chunk = slice(start, min(start + size, part.stop))
            kept.add(FEATURES[chunk], ROWS[chunk], task, embed, random)
    return kept


def whole(kept: Recollection, task: int = 1) -> Totals:
    fit, held = kept.totals(task, embed)
    return fit if held is None else fit + held


def close(one: Totals, other: Totals) -> None:
    for mine, others in ((one.gram, other.gram), (one.sums, other.sums), (one.counts, other.counts)):
        torch.testing.assert_close(mine, others, rtol=0, atol=1e-10)


def joint(part: slice = slice(0, 20)) -> Totals:
    return Totals.of(embed(FEATURES[part]), ROWS[part], 4)


@pytest.mark.parametrize("memory", ["statistics", "all"])
@pytest.mark.parametrize("twin", [False, True])
def test_statistics_and_all_features_are_the_same_fit(memory: Memory, twin: bool) -> None:
    close(whole(teach(make(memory, twin))), joint())


def test_all_features_are_held_out_as_statistics_are() -> None:
    statistics, everything = (teach(make(memory, twin=True)).totals(1, embed) for memory in ("statistics", "all"))
    for one, other in zip(statistics, everything, strict=True):
        assert one is not None
        assert other is not None
        close(one, other)


@pytest.mark.parametrize(("memory", "earlier"), [("statistics", 5), ("all", 5), (3, 5), ("none", 0)])
def test_samples_of_each_class_are_counted_also_those_that_are_not_stored(memory: Memory, earlier: int) -> None:
    kept = teach(make(memory))
    counts = kept.class_counts()
    assert kept.counts().tolist() == [earlier, earlier, 5, 5]
    assert (counts is None) == (memory == "none")
    assert counts is None or counts.tolist() == [5, 5, 5, 5]


def test_without_memory_only_the_current_task_is_fitted() -> None:
    close(whole(teach(make("none"))), joint(TASKS[1]))
    assert whole(teach(make("none"))).counts.tolist() == [0, 0, 5, 5]


def test_a_number_stores_so_many_of_each_older_class() -> None:
    kept = teach(make(2))
    found = whole(kept)
    assert found.counts.tolist() == [2, 2, 5, 5]
    assert kept.reservoir is not None
    old, rows = kept.reservoir.older_than(1)
    close(found, joint(TASKS[1]) + Totals.of(embed(old), rows, 4))
    assert all(any(torch.equal(feature, sample) for sample in FEATURES[TASKS[0]]) for feature in old)


def test_features_stored_in_the_current_task_are_not_counted_twice() -> None:
    assert whole(teach(make(2), tasks=1), task=0).counts.tolist() == [5, 5]


def test_an_older_class_that_comes_again_counts_what_is_stored_and_what_came() -> None:
    kept = teach(make(2))
    kept.add(FEATURES[:1], ROWS[:1], 1, embed, torch.Generator().manual_seed(5))
    counts = whole(kept).counts.tolist()
    assert counts[1:] == [2, 5, 5]
    assert counts[0] in (2, 3)  # the new sample may have taken the place of a kept one


@pytest.mark.parametrize("size", [1, 4, 10])
def test_what_is_stored_does_not_depend_on_the_chunk_size(size: int) -> None:
    one, other = (teach(make(2), size=size)._state.saved_tensors() for size in (size, 3))
    kept = [name for name in one if name.startswith("recollection/kept/")]
    assert len(kept) == 3
    assert all(torch.equal(one[name], other[name]) for name in kept)


def test_every_sample_of_a_class_is_stored_with_the_same_chance() -> None:
    samples, rounds = torch.arange(6.0).unsqueeze(1), 600
    hits = torch.zeros(6)
    random = torch.Generator().manual_seed(1)
    for _ in range(rounds):
        state = State()
        reservoir = ClassReservoir(state, 2, 1, torch.float64)
        state.add_classes(1)
        reservoir.add(samples, torch.zeros(6, dtype=torch.int64), 0, random)
        hits[reservoir.features.rows.flatten().long()] += 1
    assert hits.sum() == 2 * rounds
    assert ((hits / rounds - 1 / 3).abs() < 0.07).all()


def test_samples_stored_are_counted() -> None:
    assert teach(make("statistics")).samples_stored() == Amount(0, 0)
    assert teach(make("none")).samples_stored() == Amount(0, 0)
    assert teach(make(2)).samples_stored() == Amount(8, 8 * 4 * 8)
    assert teach(make(7)).samples_stored() == Amount(20, 4 * 7 * 4 * 8)
    assert teach(make("all")).samples_stored() == Amount(20, 20 * 4 * 8)
    assert teach(make("all"))._state.of_kind("statistic") == []
    assert Amount.of(*teach(make("statistics"))._state.of_kind("statistic")).count == 64 + 4 * 8 + 4
