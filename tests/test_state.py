"""The state registry: what is declared once grows, is saved, loaded and rolled back."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from every_entry import Everything, same
from prol.state import State
from prol.tables import get_value, put_value

some = settings(max_examples=40, deadline=None, derandomize=True)


# Declaring and growing


def test_tables_grow_in_the_order_of_their_declaration_and_owners_follow() -> None:
    every = Everything()
    every.state.add_classes(2)
    every.on = False
    every.state.add_classes(3)
    assert every.grown == [("ids", 2), ("followed", 2), ("ids", 3), ("followed", 3)]
    assert every.ids.rows.tolist() == [0, 1, 2, 3, 4]
    assert every.sums.rows.tolist() == [[0, 0]] * 5
    assert (every.state.classes, every.flags.count, every.log.count) == (5, 2, 0)


def test_what_is_declared_twice_is_refused() -> None:
    state = State()
    state.table("sums", kind="statistic")
    with pytest.raises(ValueError, match="'sums' is declared twice"):
        state.tensor("sums", torch.zeros(1), kind="statistic")
    state.scope("other").table("sums", kind="statistic")
    with pytest.raises(ValueError, match="'other/sums' is declared twice"):
        state.table("other/sums", kind="statistic")


def test_what_was_declared_under_a_prefix_can_be_taken_back() -> None:
    every = Everything().fill()
    every.state.scope("part").drop()
    assert not [name for name in every.state.saved_tensors() if name.startswith("part/")]
    assert every.state.saved_values() == {"clock": {"number": 1, "first_row": 2, "told": False}}
    every.state.scope("part").table("inner/flags", kind="statistic")


# Saving and loading


def test_names_and_values_are_those_declared() -> None:
    tensors, values = Everything().fill().saved()
    assert set(tensors) == {
        *("sums", "ids", "part/inner/flags", "part/inner/log", "total", "net/a", "net/b.c", "scale"),
        *("adam/sums/mean", "adam/sums/rows"),
    }
    assert values == {
        "part": {"inner": {"seen": 7}, "notes": {"list": [3]}},
        "clock": {"number": 1, "first_row": 2, "told": False},
    }
    assert "scale" not in Everything().saved()[0]


def test_a_loaded_state_is_the_saved_one_and_independent_of_it() -> None:
    every, twin = Everything().fill(), Everything().fill(5)
    saved = every.saved()
    homes = twin.total.data_ptr(), twin.weights["a"].data_ptr()
    twin.state.load({name: tensor.clone() for name, tensor in saved[0].items()}, saved[1], 3)
    assert same(twin.saved(), saved)
    assert twin.state.classes == 3
    assert homes == (twin.total.data_ptr(), twin.weights["a"].data_ptr())  # of fixed shape: loaded in place
    saved[1]["part"]["notes"]["list"].append(9)
    twin.sums.rows.add_(1)
    assert same(every.saved(), Everything().fill().saved())
    assert twin.notes == {"list": [3]}
    empty = Everything()
    empty.state.load(Everything().saved()[0], Everything().saved()[1], 0)
    assert empty.scale is None
    assert empty.moments == {}


def test_values_come_before_tensors_and_owners_are_told_of_both() -> None:
    state, order, seen = State(), list[str](), 0

    class Owner:
        size = 0

    owner = Owner()
    state.value("size", owner)
    state.group("rows", dict, lambda _: order.append("tensors"), kind="sample")
    state.on_load(lambda: order.append("refresh"), prepare=lambda: order.append(f"size {owner.size}"))
    state.load({}, {"size": 4}, seen)
    assert order == ["size 4", "tensors", "refresh"]


def test_a_snapshot_restores_what_is_under_its_prefix_alone() -> None:
    every = Everything().fill()
    part = every.state.scope("part")
    before, snapshot = every.saved(), part.snapshot()
    every.flags.rows[:] = True
    every.log.append(torch.zeros(1))
    every.seen, every.notes = 100, {}
    part.restore(snapshot)
    assert same(every.saved(), before)
    every.total += 1
    part.restore(snapshot)
    assert every.total.tolist() == [3, 3, 3]


@given(values=st.dictionaries(st.sampled_from(["a", "b/c", "b/d/e", "b/d/f"]), st.integers()))
@some
def test_values_are_nested_by_their_names(values: dict[str, int]) -> None:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        put_value(nested, name, value)
    assert {name: get_value(nested, name) for name in values} == values
    assert all("/" not in name for name in nested)


# Rolling back


def test_a_failed_update_leaves_nothing_of_what_it_added_or_said_it_would_overwrite() -> None:
    every = Everything().fill()
    before, refreshed = every.saved(), list[int]()
    every.state.on_load(lambda: refreshed.append(every.sums.count))
    record = every.state.record()
    assert record.copies == {}  # tables are measured, not copied
    every.state.add_classes(2)
    every.log.append(torch.ones(1))
    every.moments["sums/mean"] = torch.cat([every.moments["sums/mean"], torch.zeros(2, 2)])
    every.state.overwrites("total", "net", "part/inner/flags", "sums", "scale")
    every.state.overwrites("total")
    assert set(record.copies) == {"total", "net", "part/inner/flags", "sums", "scale"}
    for tensor in (every.total, every.flags.rows, every.sums.rows, *every.weights.values()):
        tensor.fill_(1)
    every.scale, every.seen, every.clock.given = None, 9, True
    every.notes["list"].append(4)
    every.state.tensor("late", torch.zeros(1), kind="statistic")
    every.state.roll_back(record)
    assert same(every.saved(), before)
    assert every.state.classes == 3
    assert refreshed == [3]
    every.state.tensor("late", torch.zeros(1), kind="statistic")  # it is not declared any more


def test_what_comes_twice_is_copied_as_it_was_first_and_a_closed_record_copies_nothing() -> None:
    every = Everything().fill()
    before, record = every.saved(), every.state.record()
    for _ in range(2):
        every.state.overwrites("total")
        every.total += 1
    every.state.roll_back(record)
    assert same(every.saved(), before)
    closed = every.state.record()
    every.state.close()
    every.state.overwrites("total")
    assert closed.copies == {}
    Everything().state.overwrites("total")  # without a record there is nothing to do


def test_a_scope_speaks_of_its_own_entries() -> None:
    state = State()
    inner, other = (state.scope(name).tensor("sums", torch.zeros(1), kind="statistic") for name in ("in", "other"))
    record = state.record()
    state.scope("in").overwrites("sums")
    inner += 1
    other += 1
    state.roll_back(record)
    assert (inner.item(), other.item()) == (0, 1)


CHANGES = st.tuples(st.sampled_from(["grow", "add", "log", "fill", "count"]), st.integers(1, 5))
STEPS = st.tuples(st.just("record"), st.just(0)), st.sampled_from([("roll back", 0), ("close", 0), ("reload", 0)])
UPDATES = st.tuples(STEPS[0], st.lists(CHANGES, max_size=5), STEPS[1], st.lists(CHANGES, max_size=3))


@given(updates=st.lists(UPDATES, max_size=5))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_sequence_of_changes_is_that_of_a_plain_dictionary(updates: list[Any]) -> None:
    """Updates, each with changes of which some overwrite, that succeed or fail, and changes without a record."""
    operations = [one for first, inner, last, after in updates for one in (first, *inner, last, *after)]
    state, values = State(), {"count": 0}
    sums = state.table("sums", kind="statistic", dtype=torch.float64)
    log = state.table("log", kind="sample", dtype=torch.float64, combine=None, grows=False)
    total = state.tensor("total", torch.zeros(2, dtype=torch.float64), kind="statistic")
    state.value("count", read=lambda: values["count"], load=lambda value: values.update(count=value))
    model: dict[str, Any] = {"sums": [], "log": [], "total": [0.0, 0.0], "count": 0}
    kept, record = None, None
    for operation, number in operations:
        if operation == "grow":
            state.add_classes(number)
            model["sums"] += [0.0] * number
        elif operation == "add" and model["sums"]:
            row = number % len(model["sums"])
            state.overwrites("sums")
            sums.add(torch.tensor([row]), torch.tensor([float(number)]))
            model["sums"][row] += number
        elif operation == "log":
            log.append(torch.full((number,), float(number)))
            model["log"] += [float(number)] * number
        elif operation == "fill":
            state.overwrites("total")
            total.fill_(number)
            model["total"] = [float(number)] * 2
        elif operation == "count":
            values["count"] = model["count"] = number
        elif operation == "record":
            kept, record = deepcopy(model), state.record()
        elif operation == "close":
            state.close()
            kept, record = None, None
        elif operation == "roll back" and record is not None:
            assert kept is not None
            state.roll_back(record)
            model, kept, record = kept, None, None
        elif operation == "reload":
            tensors = {name: tensor.clone() for name, tensor in state.saved_tensors().items()}
            state.load(tensors, state.saved_values(), state.classes)
        assert {name: tensor.tolist() for name, tensor in state.saved_tensors().items()} | values == model
        assert state.classes == len(model["sums"])
        assert not sums.buffer[sums.count :].any()


def test_the_layout_changes_when_a_buffer_moves_and_only_then() -> None:
    state = State()
    masked, plain = (
        state.table("masked", kind="parameter", capacity=4),
        state.table("plain", kind="parameter", grows=False),
    )
    state.add_classes(2)
    before = state.layout()
    masked.rows.fill_(1)
    state.add_classes(2)
    assert state.layout() == before  # the whole buffer is masked: neither its place nor its shape has changed
    plain.append(torch.ones(1))
    longer = state.layout()
    assert longer != before
    state.add_classes(1)
    moved = state.layout()
    assert moved != longer
    state.load(state.saved_tensors(), {}, 5)
    assert state.layout() != moved
    loaded = state.layout()
    state.roll_back(state.record())
    assert state.layout() != loaded
