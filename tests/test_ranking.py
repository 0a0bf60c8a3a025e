"""Predictions from scores: the same labels as argmax, probabilities that add up."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prol.prediction import Classification
from prol.ranking import ranked

SCORES = st.integers(1, 6).flatmap(
    lambda classes: st.lists(
        st.lists(st.floats(-1e4, 1e4, width=32) | st.just(-torch.inf), min_size=classes, max_size=classes),
        min_size=1,
        max_size=4,
    )
)


@given(SCORES, st.integers(1, 8))
def test_predictions_are_ranked_by_score_and_their_probabilities_add_up(rows: list[list[float]], top: int) -> None:
    scores = torch.tensor(rows, dtype=torch.float32)
    classes = [f"class {number}" for number in range(scores.shape[1])]
    for row, every, found in zip(
        scores, ranked(scores, classes, len(classes)), ranked(scores, classes, top), strict=True
    ):
        known = [value for value in row.tolist() if value != -torch.inf]
        assert [one.score for one in every] == sorted(known, reverse=True)
        assert found == every[:top]
        if known:
            assert found[0].label == classes[row.tolist().index(max(known))]
            assert sum(one.probability for one in every) == pytest.approx(1)


def test_number_and_text_labels_stay_what_they_are() -> None:
    assert [one.label for one in ranked(torch.tensor([[0.0, 1.0]]), [1, "1"], 2)[0]] == ["1", 1]


@pytest.mark.parametrize(
    ("scores", "top", "words"),
    [([[0.0]], 0, "top must be"), ([[0.0, 1.0]], 1, "is inconsistent"), ([[torch.nan]], 1, "not finite")],
)
def test_scores_that_are_no_prediction_are_refused(scores: list[list[float]], top: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ranked(torch.tensor(scores), ["cat"], top)


TWO = Classification(["cat", 7], torch.tensor([[0.9, 0.1], [0.3, 0.7]], dtype=torch.float64), torch.tensor([0.25, 1.0]))


def test_a_classification_is_columns_for_json_and_for_pandas() -> None:
    columns = {"label": ["cat", 7], "probability": [0.9, 0.7], "unknown": [0.25, 1.0]}
    assert json.loads(json.dumps(TWO.to_dict())) == columns
    assert TWO.to_pandas().to_dict(orient="list") == columns
    assert list(replace(TWO, unknown=None).to_pandas().columns) == ["label", "probability"]


def test_a_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install pandas, or use to_dict\(\)"):
        TWO.to_pandas()


def test_a_classification_prints_a_line_for_each_of_the_first_images() -> None:
    assert repr(TWO).splitlines()[1:] == ["cat       90.0 %     0.25", "7         70.0 %     1.00"]
    many = Classification(["<b>"] * 23, torch.ones(23, 1), None)
    assert len(repr(many).splitlines()) == 22
    assert repr(many).endswith("... and 3 more")
    assert many._repr_html_().count("&lt;b&gt;") == 20
    assert "<b>" not in many._repr_html_()
    assert repr(Classification([], torch.zeros(0, 0), None)) == "no images"
