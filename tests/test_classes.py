"""Rows of classes in a state: of tables, of moments, and of what their owners edit; what is said of them and merged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from every_entry import Everything
from prol.classes import Contents, with_rows_together, without_row
from prol.merging import declared_sums, fingerprint
from prol.state import State
from prol.tables import Amount

RAMP = torch.arange(5.0)


def state() -> dict[str, torch.Tensor]:
    return {
        "table": RAMP.clone(),
        "flags": torch.tensor([True, False, False, True, False]),
        "own": RAMP.clone(),
        "other": RAMP.clone(),
        "adam/table/mean": RAMP[:3].clone(),  # two classes came since the last step
        "adam/keys/rows": torch.tensor([4, 1, 3]),
        "adam/keys/mean": torch.tensor([40.0, 10.0, 30.0]),
        "adam/once/rows": torch.tensor([1]),
        "adam/once/mean": torch.tensor([7.0]),
    }


CONTENTS = Contents(
    {
        "table": "mean",
        "flags": "either",
        "own": "keep",
        "adam/table/*": "sum",
        "adam/keys/*": "mean",
        "adam/once/*": "sum",
    },
    moments=("adam/*",),
)


def test_a_row_is_taken_out_of_everything_that_has_one() -> None:
    moved = list[int]()
    contents = replace(CONTENTS, move_rows=lambda _, row: moved.append(row))
    kept, touched = without_row(state(), {}, contents, 1)
    assert kept["table"].tolist() == kept["own"].tolist() == [0, 2, 3, 4]
    assert kept["other"].tolist() == RAMP.tolist()
    assert kept["adam/table/mean"].tolist() == [0, 2]
    assert kept["adam/keys/rows"].tolist() == [3, 2]
    assert kept["adam/keys/mean"].tolist() == [40, 30]
    assert not [name for name in kept if name.startswith("adam/once/")]
    assert moved == [1]
    assert set(touched) == {"table", "flags", "own", "adam/table/mean", "adam/keys/mean", "adam/once/mean"}


def test_dense_moments_may_begin_at_a_later_row() -> None:
    contents = Contents({"table": "keep", "adam/table/*": "keep"}, moments=("adam/*",), first_moment=2)
    kept, _ = without_row(state(), {}, contents, 3)
    assert kept["adam/table/mean"].tolist() == [0, 2]  # rows 2 and 4
    assert without_row(state(), {}, contents, 0)[0]["adam/table/mean"].tolist() == [0, 1, 2]


def test_two_rows_are_put_together_as_each_table_has_it() -> None:
    merged = with_rows_together(state(), CONTENTS, 3, 1)
    assert merged["table"].tolist() == [0, 2, 2, 3, 4]
    assert merged["flags"].tolist() == [True, True, False, True, False]
    assert merged["own"].tolist() == RAMP.tolist()
    assert merged["adam/table/mean"].tolist() == [0, 1, 2]  # the other row had none yet
    assert merged["adam/keys/mean"].tolist() == [40, 20, 30]
    assert state()["table"].tolist() == RAMP.tolist()


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
    assert state.registry.counts() is None
    counted = state.table("counts", kind="statistic", counts=True)
    state.add_classes(2)
    counted.rows[1] = 5
    found = state.registry.counts()
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
    found = declared_sums(every.state)
    assert set(found.tables) == {"sums"}  # flags combine by "or", ids are kept
    assert set(found.totals) == {"total"}
    assert found.numbers == {"part/inner/seen": 7, "clock/number": 1}
    saved = every.state.saved_tensors()
    assert found.agreed == {
        "weights": fingerprint({name: saved[name] for name in ("net/a", "net/b.c")}),
        "scale": fingerprint({"scale": saved["scale"]}),
        "notes": {"list": [3]},
    }
    assert set(found.rest[0]) == saved.keys() - {"sums", "total"}
