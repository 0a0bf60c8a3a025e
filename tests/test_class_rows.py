"""Rows of classes in a state: of tables, of dense moments, and of moments of some rows only."""

from __future__ import annotations

from typing import Any

import torch

from prol.classes import Contents, with_rows_together, without_row

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
    }
)


def test_a_row_is_taken_out_of_everything_that_has_one() -> None:
    meta: dict[str, Any] = {"clock": {"first_row": 2}, "first_rows": [0, 1, 2]}
    kept, touched = without_row(state(), meta, CONTENTS, 1)
    assert kept["table"].tolist() == kept["own"].tolist() == [0, 2, 3, 4]
    assert kept["other"].tolist() == RAMP.tolist()
    assert kept["adam/table/mean"].tolist() == [0, 2]
    assert kept["adam/keys/rows"].tolist() == [3, 2]
    assert kept["adam/keys/mean"].tolist() == [40, 30]
    assert not [name for name in kept if name.startswith("adam/once/")]
    assert meta == {"clock": {"first_row": 1}, "first_rows": [0, 1, 1]}
    assert set(touched) == {"table", "flags", "own", "adam/table/mean", "adam/keys/mean", "adam/once/mean"}


def test_dense_moments_may_begin_at_a_later_row() -> None:
    contents = Contents({"table": "keep", "adam/table/*": "keep"}, first_moment=2)
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
