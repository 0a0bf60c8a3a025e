"""The state registry: what is declared once grows, is saved, loaded, rolled back, merged and described."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prol.classes import with_rows_together, without_row
from prol.state import Amount, State, Table, get_value, put_value

some = settings(max_examples=40, deadline=None, derandomize=True)


def table(*shape: int, room: int = 0) -> Table:
    return Table(shape, torch.device("cpu"), torch.float64, room)


# Tables


@given(sizes=st.lists(st.integers(0, 9), max_size=12))
@some
def test_rows_are_everything_appended_in_order(sizes: list[int]) -> None:
    grown, parts = table(2), [torch.zeros(0, 2, dtype=torch.float64)]
    for number, size in enumerate(sizes):
        parts.append(torch.full((size, 2), float(number), dtype=torch.float64))
        grown.append(parts[-1])
        assert torch.equal(grown.rows, torch.cat(parts))
        assert grown.count == len(grown.rows)


def test_a_new_table_is_empty() -> None:
    assert table(4, 2).rows.shape == (0, 4, 2)
    assert table().rows.shape == (0,)


def test_buffers_double_so_that_few_appends_move_them_and_each_move_is_counted() -> None:
    grown, place = table(3), 0
    for _ in range(1000):
        before = grown.moves
        grown.append(torch.zeros(1, 3))
        assert (grown.moves > before) == (grown.rows.data_ptr() != place)
        place = grown.rows.data_ptr()
    assert grown.moves <= 11


@pytest.mark.parametrize("way", ["at once", "one by one"])
def test_the_room_of_a_buffer_depends_on_the_rows_alone(way: str) -> None:
    grown = table(1, room=3)
    for rows in torch.ones(7, 1).split(7) if way == "at once" else torch.ones(7, 1).split(1):
        grown.append(rows)
    assert len(grown.buffer) == 12
    assert not grown.buffer[7:].any()


def test_rows_are_a_view_that_writes_through() -> None:
    grown = table(2)
    grown.append(torch.zeros(3, 2))
    grown.rows[1] = 5.0
    assert grown.rows.tolist() == [[0, 0], [5, 5], [0, 0]]


def test_appended_rows_take_the_tables_type_and_are_copies() -> None:
    grown, rows = table(2), torch.ones(1, 2, dtype=torch.float32)
    grown.append(rows)
    rows.zero_()
    assert grown.rows.dtype == torch.float64
    assert grown.rows.tolist() == [[1, 1]]


def test_a_replaced_table_grows_on_from_there_with_zeros_behind_it() -> None:
    grown = table(1)
    grown.append(torch.ones(5, 1))
    grown.replace(torch.tensor([[1.0], [2.0]]))
    assert grown.rows.tolist() == [[1], [2]]
    assert not grown.buffer[2:].any()
    grown.append(torch.tensor([[3.0]]))
    assert grown.rows.tolist() == [[1], [2], [3]]
    assert grown.rows.dtype == torch.float64


def test_a_table_may_be_replaced_by_one_of_another_width_and_truncated() -> None:
    grown = table(3)
    grown.append(torch.ones(4, 3))
    moves = grown.moves
    grown.replace(torch.full((2, 2), 7.0))
    assert grown.rows.tolist() == [[7, 7], [7, 7]]
    assert grown.moves > moves
    grown.truncate(1)
    assert grown.rows.tolist() == [[7, 7]]
    assert not grown.buffer[1:].any()


def test_changes_are_added_to_their_rows() -> None:
    grown = table(2)
    grown.append(torch.zeros(3, 2))
    rows, changes = torch.tensor([2, 0, 2]), torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    grown.add(rows, changes)
    assert grown.rows.tolist() == [[3, 4], [0, 0], [6, 8]]
    grown.add(rows, changes, times=-1)
    assert not grown.rows.any()
    grown.add_where(rows, changes, torch.tensor([True, False, False]))
    assert grown.rows.tolist() == [[0, 0], [0, 0], [1, 2]]
    grown.add_where(rows, torch.full((3, 2), torch.nan), torch.tensor([False] * 3))
    assert grown.rows.isfinite().all()


def test_an_amount_counts_numbers_and_bytes() -> None:
    assert Amount.of(torch.zeros(2, 3), torch.zeros(4, dtype=torch.float64)) == Amount(10, 56)


# Declaring and growing


@dataclass
class Clock:
    number: int = 0
    first_row: int = 0
    given: bool = field(default=False, metadata={"key": "told"})


class Everything:
    """One entry of every kind, under two prefixes."""

    def __init__(self) -> None:
        self.state, self.grown, self.fresh = State(), list[tuple[str, int]](), 0
        self.sums = self.state.table("sums", 2, kind="statistic", dtype=torch.float64)
        self.ids = self.state.table("ids", kind="parameter", dtype=torch.int64, combine="keep", initial=self._numbered)
        inner = self.state.scope("part").scope("inner")
        self.flags = inner.table("flags", kind="statistic", dtype=torch.bool, combine="either", grows=lambda: self.on)
        self.log = inner.table("log", kind="sample", combine=None, grows=False)
        self.total = self.state.tensor("total", torch.zeros(3), kind="statistic", merge="sum")
        self.layer = self.state.tensor("layer", torch.arange(3.0), kind="parameter", saved=False)
        self.weights = {"a": torch.zeros(2), "b.c": torch.zeros(2, 2)}
        self.state.tensors("net", lambda: self.weights, kind="parameter", agree="weights")
        self.scale: Tensor | None = None
        self.state.optional("scale", self, "scale", kind="parameter", agree="scale")
        self.moments: dict[str, Tensor] = {}
        self.state.group(
            "adam",
            lambda: self.moments,
            self._load_moments,
            kind="moment",
            combine={"sums/*": "sum"},
            measure=self._measure,
        )
        self.on, self.seen, self.notes, self.clock = True, 0, {"list": [1, 2]}, Clock()
        inner.value("seen", self, merge="sum")
        self.state.value("part/notes", self, "notes", agree="notes")
        self.state.scope("clock").fields(self.clock, rows=("first_row",), sums=("number",))
        self.state.on_growth(lambda count: self.grown.append(("followed", count)))

    def _numbered(self, count: int) -> Tensor:
        self.grown.append(("ids", count))
        assert self.sums.count == self.state.classes  # what was declared earlier has grown already
        assert self.flags.count < self.state.classes
        self.fresh += count
        return torch.arange(self.fresh - count, self.fresh)

    def _load_moments(self, saved: Any) -> None:
        self.moments = dict(saved)

    def _measure(self) -> Callable[[], None]:
        lengths = {name: len(tensor) for name, tensor in self.moments.items()}

        def shorten() -> None:
            self.moments = {name: self.moments[name][:length] for name, length in lengths.items()}

        return shorten

    def fill(self, classes: int = 3) -> Everything:
        self.state.add_classes(classes)
        self.sums.rows.copy_(torch.arange(2.0 * classes).view(classes, 2) + 1)
        self.flags.rows[0] = True
        self.log.append(torch.tensor([4.0, 5.0]))
        self.total += 2
        self.weights["a"] += 1
        self.scale = torch.ones(4)
        self.moments = {"sums/mean": torch.ones(classes, 2), "sums/rows": torch.arange(classes)}
        self.seen, self.notes, self.clock.number, self.clock.first_row = 7, {"list": [3]}, 1, 2
        return self

    def saved(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {name: tensor.clone() for name, tensor in self.state.saved_tensors().items()}
        return tensors, json.loads(json.dumps(self.state.saved_values()))


def same(one: Any, other: Any) -> bool:
    (tensors, values), (others, other_values) = one, other
    if tensors.keys() != others.keys() or values != other_values:
        return False
    return all(
        tensors[name].dtype == others[name].dtype and torch.equal(tensors[name], others[name]) for name in tensors
    )


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
    masked, plain = state.table("masked", kind="parameter", room=4), state.table("plain", kind="parameter", grows=False)
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


# Describing, class operations and merging


def test_tensors_are_found_by_kind_and_what_is_not_stored_is_not_counted() -> None:
    every = Everything().fill()
    every.state.table("scratch", kind="parameter", stored=False)
    assert Amount.of(*every.state.of_kind("statistic")).count == 6 + 3 + 3
    assert Amount.of(*every.state.of_kind("parameter")).count == 3 + 3 + 2 + 4 + 4  # the layer counts, though not saved
    assert Amount.of(*every.state.of_kind("sample")).count == 2
    contents = every.state.contents(None)
    kinds = {name: contents.kind(name) for name in every.state.saved_tensors()}
    assert [kinds[name] for name in ("sums", "part/inner/log", "net/a", "adam/sums/mean")] == [
        *("statistic", "sample", "parameter", "optimiser moment")
    ]


def test_classes_are_counted_by_the_table_that_counts() -> None:
    state = State()
    assert state.counts() is None
    counted = state.table("counts", kind="statistic", counts=True)
    state.add_classes(2)
    counted.rows[1] = 5
    found = state.counts()
    assert found is not None
    assert found.tolist() == [0, 5]


def test_a_class_goes_from_every_table_and_what_owners_edit() -> None:
    every = Everything().fill()
    said = list[tuple[int, ...]]()

    def remove(tensors: dict[str, Tensor], values: dict[str, Any], row: int) -> str:
        said.append((row,))
        tensors["total"] -= 1
        values["part"]["inner"]["seen"] -= 2
        return "two images"

    every.state.on_remove(remove)
    every.state.on_remove(lambda *_: "")
    contents = every.state.contents(1)
    tensors, values = every.saved()
    assert contents.take_out is not None
    assert contents.take_out(tensors, values, 1) == "two images"
    left, touched = without_row(tensors, values, contents, 1)
    assert left["sums"].tolist() == [[1, 2], [5, 6]]
    assert left["ids"].tolist() == [0, 2]
    assert left["part/inner/flags"].tolist() == [True, False]
    assert left["part/inner/log"].tolist() == [4, 5]  # its rows are not classes'
    assert left["adam/sums/rows"].tolist() == [0, 1]
    assert set(touched) == {"sums", "ids", "part/inner/flags", "adam/sums/mean"}
    assert values["clock"]["first_row"] == 1
    assert (values["part"]["inner"]["seen"], left["total"].tolist(), said) == (5, [1, 1, 1], [(1,)])
    every.state.load(left, values, 2)
    assert every.state.classes == every.sums.count == 2


def test_two_classes_become_one_in_every_table_and_what_owners_edit() -> None:
    every = Everything().fill()

    def combine(tensors: dict[str, Tensor], values: dict[str, Any], source: int, into: int) -> None:
        tensors["total"] += 10 * source + into
        values["part"]["inner"]["seen"] = 0

    every.state.on_combine(combine)
    contents = every.state.contents(0)
    tensors, values = every.saved()
    assert contents.put_together is not None
    contents.put_together(tensors, values, 0, 2)
    merged = with_rows_together(tensors, contents, 0, 2)
    assert merged["sums"].tolist() == [[1, 2], [3, 4], [6, 8]]
    assert merged["ids"].tolist() == [0, 1, 2]
    assert merged["part/inner/flags"].tolist() == [True, False, True]
    assert (merged["total"].tolist(), values["part"]["inner"]["seen"]) == ([4, 4, 4], 0)


def test_lists_of_class_rows_move_up_too() -> None:
    class Owner:
        first_rows = (0, 2, 4)

    state, owner = State(), Owner()
    state.value("first_rows", owner, read=lambda: list(owner.first_rows), is_row=True)
    values: dict[str, Any] = {"first_rows": [0, 2, 4]}
    without_row({}, values, state.contents(2), 2)
    assert values == {"first_rows": [0, 2, 3]}


def test_sentences_are_said_once_where_they_hold_and_refusals_are_passed_on() -> None:
    state = State()
    state.trace(removed="the noise", merged="the noise")
    state.trace(removed="the noise")
    state.trace(removed=lambda row: "" if row == 0 else f"row {row}", merged=lambda _: "mixed")
    assert (state.contents(0).traces, state.contents(0).merged) == (("the noise",), ("the noise", "mixed"))
    assert state.contents(3).traces == ("the noise", "row 3")
    state.refuse(removal="never", merging="nor this")
    assert (state.contents(0).refusal, state.contents(0).merge_refusal) == ("never", "nor this")


def test_what_adds_up_and_what_must_agree_when_learners_are_merged() -> None:
    every = Everything().fill()
    tables, totals, numbers = every.state.summed()
    assert set(tables) == {"sums"}  # flags combine by "or", ids are kept
    assert set(totals) == {"total"}
    assert numbers == {"part/inner/seen": 7, "clock/number": 1}
    tensors, values = every.state.agreements()
    assert {words: set(found) for words, found in tensors.items()} == {
        "weights": {"net/a", "net/b.c"},
        "scale": {"scale"},
    }
    assert values == {"notes": {"list": [3]}}
