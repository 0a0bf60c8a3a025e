from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_cases import PROTOCOLS, cases, order

from prol.data.streams import TaskSummary, blurry, class_presence, disjoint, summarise_tasks

properties = settings(max_examples=40, deadline=None, derandomize=True)


@pytest.mark.parametrize("name", PROTOCOLS)
@properties
@given(data=st.data())
def test_every_sample_is_counted_in_its_row_and_in_its_time(name: str, data: st.DataObject) -> None:
    labels, options = data.draw(cases(name))
    stream = PROTOCOLS[name](labels, **options)
    came = [labels[i] for i in order(stream)]
    counts = class_presence(stream, labels, bins=len(came))
    rows = [number for group in stream.task_classes for number in group]
    assert [rows[row] for row in counts.argmax(axis=0)] == came
    assert (counts.sum(axis=0) == 1).all()
    bins = data.draw(st.integers(1, len(came)))
    coarse = class_presence(stream, labels, bins)
    assert coarse.shape == (len(rows), bins)
    assert coarse.sum(axis=1).tolist() == counts.sum(axis=1).tolist()
    assert np.ptp(coarse.sum(axis=0)) <= 1


@pytest.mark.parametrize("bins", [0, 5])
def test_more_stretches_than_samples_are_refused(bins: int) -> None:
    labels = [0, 0, 1, 1]
    with pytest.raises(ValueError, match=f"bins must be from 1 to the number of samples, 4, got {bins}"):
        class_presence(disjoint(labels, tasks=2), labels, bins)


def test_tasks_are_summed_up() -> None:
    labels = [0] * 30 + [1] * 30 + [2] * 40
    assert summarise_tasks(disjoint(labels, tasks=2, chunk=9), labels) == (
        TaskSummary(samples=60, chunks=7, own_classes=2, classes_present=2, foreign_share=0.0),
        TaskSummary(samples=40, chunks=5, own_classes=1, classes_present=1, foreign_share=0.0),
    )
    mixed = summarise_tasks(blurry(labels, tasks=2), labels)
    assert [task.classes_present for task in mixed] == [3, 3]
    assert [round(task.foreign_share * task.samples) for task in mixed] == [4, 6]
