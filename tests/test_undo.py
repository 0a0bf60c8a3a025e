"""Undoing the last chunk; `prol.check_learner` checks on every method that the state is restored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

import prol
from golden_files import tiny_vit
from methods.every_method import VARIANTS, cases, make
from prol.learner import Learner
from prol.methods.closed_form.slda import SLDA
from prol.state import State
from prol.testing.audit import audit_learner
from prol.testing.stream import STREAM, difference, same_bits, teach
from prol.undo import MOST_BYTES, UndoRecord


def pictures(count: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, 16, 16, 3), dtype=np.uint8)


def undoable(variant: str = "ncm") -> Learner:
    learner = make(variant, torch.float32)
    learner.enable_undo()
    return learner


STEPS = st.one_of(
    st.tuples(st.just("learn"), st.lists(st.sampled_from("abcd"), min_size=1, max_size=3)),
    st.tuples(st.sampled_from(["undo", "predict"]), st.just([])),
)


@pytest.mark.parametrize("variant", ["ncm", "ranpac, reservoir", "prol_plus", "prol", "head_only"])
@settings(max_examples=8)
@given(steps=st.lists(STEPS, min_size=3, max_size=8))
def test_any_sequence_is_that_of_a_clone_taken_before(variant: str, steps: list[tuple[str, list[str]]]) -> None:
    learner, images = undoable(variant), pictures(2)
    before: Learner | None = None
    for number, (verb, labels) in enumerate(steps):
        if verb == "learn":
            before = learner.clone()
            learner.learn(pictures(len(labels), number), labels)
        elif verb == "predict":
            assert same_bits(learner.predict(images), learner.clone().predict(images))
        elif before is None:
            with pytest.raises(ValueError, match="nothing to undo"):
                learner.undo()
        else:
            learner.undo()
            assert difference(before.state(), learner.state()) == ""
            assert learner.row_of == before.row_of
            assert same_bits(learner.predict(images), before.predict(images))
            learner, before = before, None  # the clone continues, and must be like the one it was taken from
            learner.enable_undo()


def test_it_is_off_by_default_and_may_be_switched_off() -> None:
    learner = teach(make("ncm", torch.float32), STREAM[:1])
    with pytest.raises(ValueError, match=r"undo is off: call enable_undo\(\)"):
        learner.undo()
    learner.enable_undo()
    with pytest.raises(ValueError, match="no chunk was learnt since"):
        learner.undo()
    teach(learner, STREAM[1:2])
    learner.enable_undo()  # again: the record stays
    assert learner.undo_record.bytes
    learner.enable_undo(False)
    assert not learner.undo_record.tensors()
    with pytest.raises(ValueError, match="undo is off"):
        learner.undo()
    assert not learner.clone().undo_record.enabled


def test_only_the_last_chunk_can_be_undone() -> None:
    learner = teach(undoable(), STREAM)
    learner.undo()
    assert not learner.undo_record.tensors()
    with pytest.raises(ValueError, match="only the last chunk can be undone, and it was"):
        learner.undo()


CHANGES: dict[str, Callable[[Learner], Any]] = {
    "boundary": lambda learner: learner.boundary(),
    "remove_class": lambda learner: learner.remove_class("ant"),
    "rename_class": lambda learner: learner.rename_class("ant", "fly"),
    "merge_classes": lambda learner: learner.merge_classes("ant", "bee"),
    "unlearn": lambda learner: learner.unlearn(STREAM[3].images[:1], list(STREAM[3].labels[:1])),
    "load_state": lambda learner: learner.load_state(*learner.state()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_changes_cannot_be_undone_and_leave_no_copy_behind(change: str) -> None:
    learner = teach(undoable("slda"), STREAM)
    assert learner.undo_record.tensors()
    CHANGES[change](learner)
    assert not learner.undo_record.tensors()
    with pytest.raises(ValueError, match="cannot be undone, nor can a chunk learnt before"):
        learner.undo()
    before = learner.state()
    teach(learner, STREAM[1:2])
    learner.undo()
    assert difference(before, learner.state()) == ""


def test_a_chunk_that_is_refused_leaves_the_record_and_one_that_fails_does_not() -> None:
    learner = teach(undoable("prol_plus"), STREAM[:2])
    before = learner.clone()
    teach(learner, STREAM[2:3], announced=False)
    with pytest.raises(ValueError, match="1 images but 2 labels"):
        learner.learn(pictures(1), ["ant", "bee"])
    learner.undo()
    assert difference(before.state(), learner.state()) == ""
    teach(learner, STREAM[2:3], announced=False)
    usual, after = learner.preprocessing, learner.state()
    learner.preprocessing = replace(usual, std=(0.0, 0.0, 0.0))
    with pytest.raises(ValueError, match="not finite"):
        teach(learner, STREAM[3:])
    assert difference(after, learner.state()) == ""
    with pytest.raises(ValueError, match="the last update failed"):
        learner.undo()


def test_an_update_that_fails_half_way_is_rolled_back_where_undo_is_on() -> None:
    class Brittle(SLDA):
        def update(self, encoded: Tensor, rows: Tensor) -> None:
            super().update(encoded, rows)
            if len(rows) == 3:
                raise RuntimeError("half way")

    learner = Brittle(tiny_vit(torch.float32), Brittle.read_options({}))
    learner.enable_undo()
    teach(learner, STREAM[:2])
    before = learner.state()
    with pytest.raises(RuntimeError, match="half way"):
        learner.learn(pictures(3), ["ant", "bee", "ant"])
    assert difference(before, learner.state()) == ""


def test_a_record_of_more_than_200_mb_is_refused() -> None:
    learner = prol.create("ranpac", tiny_vit(torch.float32), features=10_000, ridge=0.5)
    with pytest.raises(ValueError, match=r"its record would take 4\d\d MB .* at most 200 MB .* fewer features"):
        learner.enable_undo()
    assert not learner.undo_record.enabled


def test_a_record_that_grows_too_large_is_left_out_and_learning_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    learner, twin = undoable("slda"), make("slda", torch.float32)
    teach(learner, STREAM[:2])
    monkeypatch.setattr("prol.undo.MOST_BYTES", learner.undo_record.size())
    teach(learner, STREAM[2:], announced=False)  # more classes, so larger tables
    assert not learner.undo_record.tensors()
    with pytest.raises(ValueError, match="undo is refused: its record would take"):
        learner.undo()
    teach(twin, STREAM[:2])
    teach(twin, STREAM[2:], announced=False)
    assert difference(twin.state(), learner.state()) == ""


@pytest.mark.parametrize("variant", cases(VARIANTS))
def test_the_record_is_in_no_saved_state_and_in_no_file(variant: str, tmp_path: Path) -> None:
    plain, recorded = teach(make(variant, torch.float32)), teach(undoable(variant))
    assert difference(plain.state(), recorded.state()) == ""
    for name, learner in (("plain", plain), ("recorded", recorded)):
        learner.save(tmp_path / name)
    assert recorded.undo_record.tensors()
    contents = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "recorded")]
    assert contents[0] == contents[1]


def test_the_audit_names_the_record() -> None:
    learner = teach(undoable("prol_plus"), STREAM[:2])
    found = audit_learner(learner, images=16)
    named = {one.name: one.bytes for one in found.tensors if one.kind == "undo record"}
    assert {"undo/moments/gram.0", "undo/moments/sums", "undo/random"} <= set(named)
    assert sum(named.values()) == learner.undo_record.bytes
    assert f"{learner.undo_record.bytes:,} bytes" in found.findings[-1]
    assert found.keeps_no_samples()
    learner.enable_undo(False)
    off = audit_learner(learner, images=16)
    assert "Undo is off: no record of the last chunk is stored." in off.findings[-1]
    assert not [one for one in off.tensors if one.kind == "undo record"]


def test_buffers_are_used_again_and_rows_of_other_classes_are_not_copied() -> None:
    learner = teach(undoable("slda"), STREAM[:2])
    places = {name: tensor.data_ptr() for name, tensor in learner.undo_record._buffers.items()}
    teach(learner, STREAM[1:2])
    assert {name: tensor.data_ptr() for name, tensor in learner.undo_record._buffers.items()} == places
    small = teach(undoable("ncm"))
    small.learn(pictures(3), ["cat", "ant", "cat"])
    assert {name: len(rows) for name, rows in small.undo_record.tensors().items() if name != "random"} == {
        "sums": 2,
        "counts": 2,
    }


def test_of_features_that_are_only_appended_nothing_is_copied() -> None:
    learner = teach(undoable("knn"), STREAM[:2])
    assert set(learner.undo_record.tensors()) == {"random"}
    assert learner.undo_record.size() == 0


def test_the_size_of_a_record_counts_what_is_copied() -> None:
    state = State()
    total = state.tensor("total", torch.zeros(10), kind="statistic")
    whole = state.table("whole", 2, kind="statistic", capacity=8)
    rows = state.table("rows", 3, kind="statistic", writes="chunk")
    appended = state.table("appended", 5, kind="sample", writes="none")
    state.group("made again", lambda: {"": torch.zeros(99)}, lambda _: None, kind="parameter", saved=False)
    state.add_classes(4)
    undo = UndoRecord(state.registry)
    undo.enable(True)
    assert undo.size([1, 1, 2]) == 4 * (10 + 8 * 2 + 2 * 3)
    record = state.record()
    undo.fill(record, [1, 1, 2], torch.zeros(0))
    assert undo.bytes == undo.size([1, 1, 2]) <= MOST_BYTES
    state.close()
    before = {name: tensor.clone() for name, tensor in state.saved_tensors().items()}
    state.add_classes(1)
    for tensor in (total, whole.rows, rows.rows[1:3]):
        tensor += 1
    assert undo.last()[0] is record
    state.roll_back(record)
    assert all(torch.equal(before[name], tensor) for name, tensor in state.saved_tensors().items())
    assert (rows.count, appended.count, state.classes) == (4, 4, 4)
