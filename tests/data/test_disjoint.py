from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from stream_cases import Case, cases, class_counts, order

from prol.data.streams import disjoint

properties = settings(max_examples=60, deadline=None, derandomize=True)


@properties
@given(cases("disjoint"))
def test_every_class_is_in_exactly_one_task_and_only_there(case: Case) -> None:
    labels, options = case
    stream = disjoint(labels, **options)
    assert [set(met) for met in class_counts(stream, labels)] == [set(group) for group in stream.task_classes]


@properties
@given(cases("disjoint"))
def test_task_sizes_differ_by_at_most_one_and_the_larger_come_first(case: Case) -> None:
    labels, options = case
    sizes = [len(group) for group in disjoint(labels, **options).task_classes]
    assert len(sizes) == options["tasks"]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@properties
@given(cases("disjoint"))
def test_dropping_the_surplus_gives_every_task_the_same_number_of_classes(case: Case) -> None:
    labels, options = case
    whole, dropped = disjoint(labels, **options), disjoint(labels, **options | {"drop_surplus": True})
    each = len(set(labels)) // options["tasks"]
    assert [len(group) for group in dropped.task_classes] == [each] * options["tasks"]
    kept = [c for group in dropped.task_classes for c in group]
    assert kept == [c for group in whole.task_classes for c in group][: len(kept)]
    assert sorted(order(dropped)) == [i for i, label in enumerate(labels) if label in kept]


def test_shuffling_classes_changes_which_but_not_how_samples_are_drawn() -> None:
    # Every class has the same size, so the place of each sample within its task must agree.
    labels = np.repeat(np.arange(4), 5)
    plain, shuffled = disjoint(labels, tasks=4), disjoint(labels, tasks=4, class_order="shuffled", seed=0)
    assert [i % 5 for i in order(plain)] == [i % 5 for i in order(shuffled)]


def test_classes_by_label_are_consecutive_numbers() -> None:
    stream = disjoint([7, 3, 3, 9, 1, 5], tasks=2)
    assert stream.task_classes == ((1, 3, 5), (7, 9))


def test_the_samples_of_a_task_are_mixed() -> None:
    labels = np.repeat(np.arange(4), 50)
    first_task = [labels[i] for i in order(disjoint(labels, tasks=2))][:100]
    assert first_task != sorted(first_task)
    assert set(first_task) == {0, 1}


def test_the_order_of_a_seed_never_changes_between_versions() -> None:
    stream = disjoint([0, 0, 0, 1, 1, 1, 2, 2], tasks=2, chunk=4, seed=5, class_order="shuffled")
    assert (stream.task_classes, order(stream)) == (((0, 2), (1,)), [1, 6, 0, 7, 2, 3, 4, 5])
