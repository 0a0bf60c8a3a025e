"""The protocols blurry, i-Blurry and Si-Blurry."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_cases import PERCENT, Case, cases, class_counts, nearest, order, own_task

from prol.data.streams import Stream, blurry, disjoint, iblurry, siblurry
from prol.data.streams.blurry import portions

properties = settings(max_examples=100, deadline=None, derandomize=True)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 2000), max_size=50), PERCENT)
def test_portions_add_up_to_the_rounded_share_and_each_is_rounded_down_or_up(sizes: list[int], percent: float) -> None:
    taken = portions(sizes, percent).tolist()
    assert sum(taken) == nearest(sum(sizes) * percent / 100)
    for size, part in zip(sizes, taken, strict=True):
        # A hair's breadth for shares that are whole numbers but for the last bit.
        assert math.floor(size * percent / 100 - 1e-6) <= part <= math.ceil(size * percent / 100 + 1e-6)
        assert 0 <= part <= size


def test_the_ends_take_nothing_and_all() -> None:
    assert portions([3, 0, 5], 0).tolist() == [0, 0, 0]
    assert portions([3, 0, 5], 100).tolist() == [3, 0, 5]


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


@properties
@given(cases("iblurry", least_tasks=2))
def test_the_first_classes_of_each_task_are_disjoint_and_as_many_as_given(case: Case) -> None:
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


def away(stream: Stream, labels: list[int]) -> dict[int, int]:
    """How many samples of each class lie outside the task it belongs to."""
    counts = class_counts(stream, labels)
    return {number: labels.count(number) - counts[task][number] for number, task in own_task(stream).items()}


def at_home(labels: list[int], options: dict[str, Any]) -> set[int]:
    """The disjoint classes: with minor=100 every other class of several samples has but one at home."""
    return {number for number, count in away(siblurry(labels, **options | {"minor": 100}), labels).items() if not count}


@properties
@given(cases("siblurry", least_tasks=2))
def test_each_task_begins_with_its_disjoint_classes_and_there_are_as_many_as_given(case: Case) -> None:
    labels, options = case[0] * 2, case[1]
    disjoint = at_home(labels, options)
    assert len(disjoint) == nearest(len(set(labels)) * options["disjoint"] / 100)
    for group in siblurry(labels, **options).task_classes:
        kinds = [number in disjoint for number in group]
        assert kinds == sorted(kinds, reverse=True)


@properties
@given(cases("siblurry", least_tasks=2))
def test_so_many_samples_of_blurry_classes_leave_their_task_as_given_and_no_others(case: Case) -> None:
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
