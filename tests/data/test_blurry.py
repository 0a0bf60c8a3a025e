from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from stream_cases import Case, cases, class_counts, own_task

from prol.data.streams import blurry, disjoint
from prol.data.streams.blurry import portions

properties = settings(max_examples=100, deadline=None, derandomize=True)


@properties
@given(cases("blurry", least_tasks=2))
def test_each_class_leaves_its_portion_in_other_tasks_but_keeps_one_sample(case: Case) -> None:
    labels, options = case
    stream = blurry(labels, **options)
    counts, home, sizes = class_counts(stream, labels), own_task(stream), Counter(labels)
    asked = portions([sizes[number] for number in home], options["minor"])
    for (number, task), portion in zip(home.items(), asked.tolist(), strict=True):
        assert counts[task][number] == sizes[number] - min(portion, sizes[number] - 1)


@properties
@given(cases("blurry", least_tasks=2))
def test_what_leaves_is_spread_evenly_over_the_other_tasks(case: Case) -> None:
    labels, options = case
    stream = blurry(labels, **options)
    counts = class_counts(stream, labels)
    for number, home in own_task(stream).items():
        elsewhere = [met[number] for task, met in enumerate(counts) if task != home]
        assert max(elsewhere) - min(elsewhere) <= 1


@properties
@given(cases("blurry"))
def test_classes_belong_to_tasks_as_if_they_were_disjoint(case: Case) -> None:
    labels, options = case
    shared = {name: value for name, value in options.items() if name != "minor"}
    assert blurry(labels, **options).task_classes == disjoint(labels, **shared).task_classes


def test_of_a_hundred_samples_of_each_class_ten_lie_elsewhere_by_default() -> None:
    labels = np.repeat(np.arange(10), 100).tolist()
    for task, met in enumerate(class_counts(blurry(labels, tasks=5), labels)):
        assert [met[2 * task], met[2 * task + 1]] == [90, 90]
        assert {met[number] for number in range(10) if number // 2 != task} == {2, 3}


def test_tasks_receive_alike() -> None:
    labels = np.repeat(np.arange(100), 25)
    stream = blurry(labels)
    sizes = [sum(len(chunk.indices) for chunk in stream.chunks if chunk.task == task) for task in range(10)]
    assert max(sizes) - min(sizes) <= 5


def test_no_minor_samples_make_disjoint_tasks_and_all_of_them_leave_one() -> None:
    labels = [0] * 6 + [1] * 6
    assert class_counts(blurry(labels, tasks=2, minor=0), labels) == [{0: 6}, {1: 6}]
    assert class_counts(blurry(labels, tasks=2, minor=100), labels) == [{0: 1, 1: 5}, {0: 5, 1: 1}]
