from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from stream_cases import Case, cases, class_counts, nearest, own_task

from prol.data.streams import Stream, siblurry

properties = settings(max_examples=100, deadline=None, derandomize=True)


def away(stream: Stream, labels: list[int]) -> dict[int, int]:
    """How many samples of each class lie outside the task it belongs to."""
    counts = class_counts(stream, labels)
    return {number: labels.count(number) - counts[task][number] for number, task in own_task(stream).items()}


def at_home(labels: list[int], options: dict[str, Any]) -> set[int]:
    """The disjoint classes: with minor=100 every other class of several samples has but one at home."""
    return {number for number, count in away(siblurry(labels, **options | {"minor": 100}), labels).items() if not count}


@properties
@given(cases("siblurry", least_tasks=2))
def test_each_task_begins_with_its_disjoint_classes_and_there_are_so_many_as_asked(case: Case) -> None:
    labels, options = case[0] * 2, case[1]
    disjoint = at_home(labels, options)
    assert len(disjoint) == nearest(len(set(labels)) * options["disjoint"] / 100)
    for group in siblurry(labels, **options).task_classes:
        kinds = [number in disjoint for number in group]
        assert kinds == sorted(kinds, reverse=True)


@properties
@given(cases("siblurry", least_tasks=2))
def test_so_many_samples_of_blurry_classes_leave_their_task_as_asked_and_no_others(case: Case) -> None:
    labels, options = case[0] * 2, case[1]
    disjoint = at_home(labels, options)
    moved = away(siblurry(labels, **options), labels)
    assert all(moved[number] == 0 for number in disjoint)
    assert all(moved[number] < labels.count(number) for number in moved)
    samples = sum(number not in disjoint for number in labels)
    free = samples - (len(moved) - len(disjoint))
    assert sum(moved.values()) == min(nearest(samples * options["minor"] / 100), free)


def test_numbers_of_classes_differ_from_task_to_task_and_from_seed_to_seed() -> None:
    labels = np.repeat(np.arange(100), 5)
    sizes = [tuple(len(group) for group in siblurry(labels, seed=seed).task_classes) for seed in range(20)]
    assert len(set(sizes)) == 20
    assert all(len(set(of_seed)) > 1 for of_seed in sizes)
    assert np.mean(sizes) == 10
    assert 10 < np.mean([max(of_seed) for of_seed in sizes]) < 40


def test_where_each_sample_goes_is_drawn() -> None:
    labels = np.repeat(np.arange(4), 1000).tolist()
    stream = siblurry(labels, tasks=4, disjoint=0, minor=30)
    counts, home = class_counts(stream, labels), own_task(stream)
    elsewhere = [met[number] for number in range(4) for task, met in enumerate(counts) if task != home[number]]
    assert sum(elsewhere) == 1200
    assert min(elsewhere) > 60
    assert len(set(elsewhere)) > 2


def test_as_many_tasks_as_classes_leave_one_class_to_each() -> None:
    for seed in range(20):
        stream = siblurry([0, 1, 2, 3, 4, 5], tasks=6, seed=seed)
        assert [len(group) for group in stream.task_classes] == [1] * 6
