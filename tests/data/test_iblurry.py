from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from stream_cases import Case, cases, class_counts, nearest, order, own_task

from prol.data.streams import blurry, disjoint, iblurry
from prol.data.streams.blurry import portions

properties = settings(max_examples=100, deadline=None, derandomize=True)


@properties
@given(cases("iblurry", least_tasks=2))
def test_the_first_classes_of_each_task_are_disjoint_and_so_many_as_asked(case: Case) -> None:
    labels, options = case
    stream = iblurry(labels, **options)
    counts = class_counts(stream, labels)
    alone = portions([len(group) for group in stream.task_classes], options["disjoint"]).tolist()
    assert sum(alone) == nearest(len(set(labels)) * options["disjoint"] / 100)
    for task, (group, count) in enumerate(zip(stream.task_classes, alone, strict=True)):
        for number in group[:count]:
            assert [met[number] for met in counts] == [
                labels.count(number) if t == task else 0 for t in range(len(counts))
            ]


@properties
@given(cases("iblurry", least_tasks=2))
def test_a_blurry_class_leaves_its_portion_evenly_in_every_other_task(case: Case) -> None:
    labels, options = case
    stream = iblurry(labels, **options)
    counts, home, sizes = class_counts(stream, labels), own_task(stream), Counter(labels)
    alone = portions([len(group) for group in stream.task_classes], options["disjoint"]).tolist()
    mixed = [number for group, count in zip(stream.task_classes, alone, strict=True) for number in group[count:]]
    asked = portions([sizes[number] for number in mixed], options["minor"])
    for number, portion in zip(mixed, asked.tolist(), strict=True):
        elsewhere = [met[number] for task, met in enumerate(counts) if task != home[number]]
        assert sum(elsewhere) == min(portion, sizes[number] - 1)
        assert max(elsewhere) - min(elsewhere) <= 1
        if sum(elsewhere) >= len(elsewhere):
            assert all(met[number] for met in counts)


def test_the_usual_setting_has_half_of_the_classes_in_every_task() -> None:
    labels = np.repeat(np.arange(20), 100).tolist()
    counts = class_counts(iblurry(labels, tasks=5), labels)
    everywhere = [number for number in range(20) if all(met[number] for met in counts)]
    assert len(everywhere) == 10
    assert [len(met) for met in counts] == [2 + 10] * 5
    assert all(sorted(met[number] for met in counts)[-1] == 90 for number in everywhere)


def test_the_ends_are_disjoint_and_blurry() -> None:
    labels = np.repeat(np.arange(6), 10)
    assert order(iblurry(labels, tasks=3, disjoint=100)) == order(disjoint(labels, tasks=3))
    assert order(iblurry(labels, tasks=3, disjoint=0)) == order(blurry(labels, tasks=3))
