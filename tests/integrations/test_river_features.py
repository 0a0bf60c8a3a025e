"""Streaming LDA with river's verbs."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from river import checks, compose, datasets, evaluate, metrics, preprocessing

from prol.integrations.river_models import StreamingLDA
from prol.integrations.scikit import StreamingLDA as ForScikit

SEGMENTS = list(datasets.ImageSegments().take(120))
NAMES = list(SEGMENTS[0][0])


def river_checks() -> list[Any]:
    """Every check of river for this model, by number: some bring their data along, which can be read once.

    Repetitions of a check with other data, and the longest check, are slow tests.
    """
    found, names = [], set[str]()
    for number, check in enumerate(checks.yield_checks(StreamingLDA())):
        repeated = check.__name__ in names or check.__name__ == "check_bounded_memory_growth"
        names.add(check.__name__)
        found.append(
            pytest.param(number, id=f"{number}-{check.__name__}", marks=[pytest.mark.slow] if repeated else [])
        )
    return found


@pytest.mark.parametrize("number", river_checks())
def test_it_passes_every_check_of_river(number: int) -> None:
    model = StreamingLDA()
    check: Callable[[Any], None] = next(itertools.islice(checks.yield_checks(model), number, None))
    assert check.__name__ not in model._unit_test_skips()
    check(model.clone())


def test_one_by_one_it_is_what_scikit_learns_fit_gives() -> None:
    model, x = StreamingLDA(), np.array([[float(x[name]) for name in NAMES] for x, _ in SEGMENTS])
    for sample, label in SEGMENTS:
        model.learn_one(sample, label)
    whole = ForScikit().fit(x, [label for _, label in SEGMENTS])
    ours = [model.predict_proba_one(sample) for sample, _ in SEGMENTS]
    expected = whole.predict_proba(x)
    np.testing.assert_allclose([[p[c] for c in whole.classes_] for p in ours], expected, rtol=1e-4, atol=1e-8)
    assert [model.predict_one(sample) for sample, _ in SEGMENTS] == whole.predict(x).tolist()


def test_progressive_validation_is_far_better_than_chance() -> None:
    scores = [
        evaluate.progressive_val_score(datasets.ImageSegments().take(400), model, metrics.Accuracy()).get()
        for model in (StreamingLDA(), compose.Pipeline(preprocessing.StandardScaler(), StreamingLDA()))
    ]
    assert min(scores) > 0.8


def test_a_feature_that_is_absent_is_zero() -> None:
    sparse, dense = StreamingLDA(), StreamingLDA()
    stream = [({"a": 1.0}, "x"), ({"b": 2.0}, "y"), ({"a": 2.0, "b": 0.5, "c": 1.0}, "x"), ({}, "y"), ({"c": 3.0}, "z")]
    for x, y in stream:
        sparse.learn_one(x, y)
        dense.learn_one({"a": 0.0, "b": 0.0, "c": 0.0} | x, y)
    for x, _ in stream:
        assert sparse.predict_proba_one(x) == pytest.approx(dense.predict_proba_one(x))
        assert sparse.predict_proba_one(x | {"never seen": 9.0}) == sparse.predict_proba_one(x)


def test_the_order_of_a_dictionary_makes_no_difference_to_the_bit() -> None:
    forth, back = StreamingLDA(), StreamingLDA()
    for x, y in SEGMENTS:
        forth.learn_one(x, y)
        back.learn_one(dict(reversed(x.items())), y)
    assert all(forth.predict_proba_one(x) == back.predict_proba_one(x) for x, _ in SEGMENTS)


def frames(columns: list[list[str]]) -> list[tuple[pa.Table, pa.ChunkedArray]]:
    """One batch of 20 samples for each list of columns."""
    batches = []
    for number, names in enumerate(columns):
        rows = SEGMENTS[20 * number : 20 * (number + 1)]
        table = pa.table({name: [float(x[name]) for x, _ in rows] for name in names})
        batches.append((table, pa.chunked_array([[y for _, y in rows]])))
    return batches


def test_batches_whose_columns_come_and_go_are_what_single_samples_are() -> None:
    one, many = StreamingLDA(), StreamingLDA()
    for table, labels in frames([NAMES[:9], NAMES, NAMES[9:], NAMES[:1], NAMES]):
        many.learn_many(table, labels)
        for x, y in zip(table.to_pylist(), labels.to_pylist(), strict=True):
            one.learn_one(x, y)
    [(table, _)] = frames([NAMES])
    shares, labels = many.predict_proba_many(table), many.predict_many(table)
    assert isinstance(shares, pa.Table)
    for row, label, x in zip(shares.to_pylist(), labels.to_pylist(), table.to_pylist(), strict=True):
        assert row == pytest.approx(one.predict_proba_one(x), rel=1e-4, abs=1e-8)
        assert label == one.predict_one(x)


def test_what_is_missing_in_a_row_of_a_frame_is_not_in_that_row() -> None:
    one, many = StreamingLDA(), StreamingLDA()
    table, labels = pa.table({"a": [1.0, None, 3.0], "b": [None, 1.0, float("nan")]}), ["x", "y", "x"]
    many.learn_many(table, pa.chunked_array([labels]))
    for x, y in zip([{"a": 1.0}, {"b": 1.0}, {"a": 3.0}], labels, strict=True):
        one.learn_one(x, y)
    assert many.predict_proba_one({"a": 2.0}) == pytest.approx(one.predict_proba_one({"a": 2.0}))


def test_it_predicts_from_the_start() -> None:
    model, table = StreamingLDA(), pa.table({"a": [1.0, 2.0]})
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_many(table).to_pylist() == [None, None]
    model.learn_one({"a": 1.0}, True)
    assert model.predict_proba_one({"a": 1.0}) == {True: 1.0}
    model.learn_one({"a": 5.0}, False)
    assert [model.predict_one({"a": value}) for value in (0.0, 6.0)] == [True, False]


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ({"new": "red"}, "x", "feature 'new' must be a finite number, got 'red': encode text"),
        ({"new": None}, "x", "feature 'new' must be a finite number, got None"),
        ({"new": float("nan")}, "x", "leave out missing values"),
        ({"new": 1e200}, "x", "at most 1e\\+100 in absolute value"),
        ([1.0, 2.0], "x", "must be a dictionary of numbers by name, got a list"),
        ({"new": 1.0}, None, "a label must not be missing"),
        ({"new": 1.0}, float("nan"), "a label must not be missing"),
    ],
)
def test_a_sample_that_is_refused_changes_nothing(x: Any, y: Any, says: str) -> None:
    model = StreamingLDA()
    model.learn_one({"a": 1.0}, "x")
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=says):
        model.learn_one(x, y)
    assert pickle.dumps(model) == before


def test_a_batch_that_is_refused_changes_nothing() -> None:
    model = StreamingLDA()
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match="2 rows but 1 labels"):
        model.learn_many(pa.table({"a": [1.0, 2.0]}), pa.chunked_array([["x"]]))
    with pytest.raises(ValueError, match="a label must not be missing"):
        model.learn_many(pa.table({"a": [1.0, 2.0]}), pa.chunked_array([["x", None]]))
    with pytest.raises(ValueError, match="feature 'a' must hold numbers, not String: encode text"):
        model.learn_many(pa.table({"a": ["1", "2"]}), pa.chunked_array([["x", "y"]]))
    with pytest.raises(ValueError, match="at most 1e\\+100 in absolute value"):
        model.learn_many(pa.table({"a": [1.0, float("inf")]}), pa.chunked_array([["x", "y"]]))
    assert pickle.dumps(model) == before


def test_truths_and_columns_without_any_value_are_read() -> None:
    model = StreamingLDA()
    table = pa.table({"a": [True, False, True, False], "b": [1, 2, 3, 4], "c": pa.nulls(4)})
    model.learn_many(table, pa.chunked_array([[1, 0, 1, 0]]))
    assert model.predict_many(table).to_pylist() == [1, 0, 1, 0]


def test_a_shrinkage_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="shrinkage must be a number from 0 to 1"):
        StreamingLDA(shrinkage=2.0)
