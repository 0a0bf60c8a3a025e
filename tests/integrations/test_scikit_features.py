"""Streaming LDA with scikit-learn's verbs."""

from __future__ import annotations

import io
import pickle
from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from prol.integrations.scikit import StreamingLDA

X, Y = load_wine(return_X_y=True)
NAMES = np.array(["barolo", "grignolino", "barbera"])


@parametrize_with_checks([StreamingLDA(), StreamingLDA(shrinkage=0.1, priors=False)])
def test_it_passes_every_check_of_scikit_learn(estimator: StreamingLDA, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("chunk", [1, 20, 178])
@pytest.mark.parametrize("labels", [Y, NAMES[Y]], ids=["numbers", "texts"])
def test_chunks_of_a_stream_sorted_by_class_give_what_fit_gives(chunk: int, labels: Any) -> None:
    whole, stream = StreamingLDA().fit(X, labels), StreamingLDA()
    for start in range(0, len(X), chunk):
        assert stream.partial_fit(X[start : start + chunk], labels[start : start + chunk]) is stream
    assert stream.classes_.tolist() == whole.classes_.tolist() == sorted(set(labels.tolist()))
    np.testing.assert_allclose(stream.predict_proba(X), whole.predict_proba(X), rtol=1e-6, atol=1e-10)
    assert stream.score(X, labels) > 0.99


def test_classes_grow_and_stay_sorted() -> None:
    model = StreamingLDA().partial_fit(X[Y == 1], NAMES[Y[Y == 1]])
    assert model.classes_.tolist() == ["grignolino"]
    assert model.predict_proba(X[:2]).tolist() == [[1.0], [1.0]]
    model.partial_fit(X[Y == 2], NAMES[Y[Y == 2]])
    assert model.classes_.tolist() == ["barbera", "grignolino"]
    assert model.decision_function(X).shape == (len(X),)
    assert (model.decision_function(X[Y == 1]) > 0).mean() > 0.98
    model.partial_fit(X[Y == 0], NAMES[Y[Y == 0]])
    assert model.classes_.tolist() == ["barbera", "barolo", "grignolino"]
    assert model.score(X, NAMES[Y]) > 0.99


def test_announced_classes_have_columns_and_no_probability_and_others_may_come() -> None:
    model = StreamingLDA().partial_fit(X[Y < 2], Y[Y < 2], classes=[0, 1, 7])
    assert model.classes_.tolist() == [0, 1, 7]
    assert model.predict_proba(X)[:, 2].tolist() == [0.0] * len(X)
    model.partial_fit(X[Y == 2], Y[Y == 2])
    assert model.classes_.tolist() == [0, 1, 2, 7]
    np.testing.assert_allclose(model.predict_proba(X)[:, :3], StreamingLDA().fit(X, Y).predict_proba(X), atol=1e-10)


def test_fit_forgets() -> None:
    again = StreamingLDA().fit(X[:, :3], NAMES[Y]).fit(X, Y)
    assert np.array_equal(again.predict_proba(X), StreamingLDA().fit(X, Y).predict_proba(X))


@pytest.mark.parametrize(
    ("features", "labels", "says"),
    [
        (X[:2, :5], Y[:2], "5 features, but StreamingLDA is expecting 13"),
        (X[:2], ["a", "b"], "all text or all numbers"),
        (X[:2], [0.5, 1.5], "Unknown label type"),
        (X[:3], Y[:2], "inconsistent numbers of samples"),
        (np.full((2, 13), np.nan), Y[:2], "contains NaN"),
        (np.full((2, 13), 1e200), [5, 6], "at most 1e\\+100 in absolute value"),
    ],
)
def test_bad_input_is_refused_and_what_was_learnt_stays(features: Any, labels: Any, says: str) -> None:
    model = StreamingLDA().fit(X, Y)
    before = pickle.dumps(model)
    with pytest.raises(ValueError, match=says):
        model.partial_fit(features, labels)
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("shrinkage", ["ledoit", 1.5, -0.1, True, None])
def test_a_shrinkage_that_is_none_is_refused(shrinkage: Any) -> None:
    with pytest.raises(ValueError, match="shrinkage must be a number from 0 to 1, or 'oas'"):
        StreamingLDA(shrinkage).fit(X, Y)


def test_it_goes_into_pipelines_searches_and_files() -> None:
    assert cross_val_score(make_pipeline(StandardScaler(), StreamingLDA()), X, Y).mean() > 0.97
    search = GridSearchCV(StreamingLDA(), {"shrinkage": [1.0, "oas"]}).fit(X, Y)
    assert search.best_params_ == {"shrinkage": "oas"}
    file = io.BytesIO()
    joblib.dump(search.best_estimator_, file)
    file.seek(0)
    loaded = joblib.load(file)
    assert np.array_equal(loaded.predict_proba(X), search.predict_proba(X))
    assert loaded.partial_fit(X[:5], Y[:5] + 3).classes_.tolist() == [0, 1, 2, 3]
