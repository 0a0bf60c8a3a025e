"""The protocols disjoint and imbalanced."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from stream_cases import Case, cases, class_counts, order

from prol.data.streams import disjoint, imbalanced

properties = settings(max_examples=100, deadline=None, derandomize=True)


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


@properties
@given(cases("imbalanced"))
def test_classes_ranked_by_label_keep_what_their_rank_leaves_them(case: Case) -> None:
    labels, options = case
    kept = Counter(labels[i] for i in order(imbalanced(labels, **options | {"ranks": "label"})))
    for rank, number in enumerate(sorted(set(labels))):
        exact = labels.count(number) * options["ratio"] ** (-rank / max(1, len(set(labels)) - 1))
        assert kept[number] == max(1, int(exact + 0.5))


@properties
@given(cases("imbalanced"))
def test_drawn_ranks_give_the_same_sizes_to_other_classes(case: Case) -> None:
    labels, options = case
    even = [number for number in set(labels) for _ in range(7)]
    sizes = [
        sorted(Counter(even[i] for i in order(imbalanced(even, **options | {"ranks": ranks}))).values())
        for ranks in ("label", "shuffled")
    ]
    assert sizes[0] == sizes[1]


@properties
@given(cases("imbalanced"))
def test_classes_come_in_their_task_only(case: Case) -> None:
    labels, options = case
    stream = imbalanced(labels, **options)
    assert [set(met) for met in class_counts(stream, labels)] == [set(group) for group in stream.task_classes]
    shared = {name: options[name] for name in ("tasks", "chunk", "seed", "class_order")}
    assert stream.task_classes == disjoint(labels, **shared).task_classes


def test_the_largest_class_has_ratio_times_the_smallest() -> None:
    labels = np.repeat(np.arange(10), 500)
    kept = np.bincount(labels[order(imbalanced(labels))])
    assert (kept.max(), kept.min()) == (500, 5)
    assert sorted(kept.tolist(), reverse=True) == [500, 300, 180, 108, 65, 39, 23, 14, 8, 5]
    assert kept.tolist() != sorted(kept.tolist(), reverse=True)


def test_the_seed_draws_ranks_and_which_samples_are_selected() -> None:
    labels = np.repeat(np.arange(10), 50)
    first, other = (set(order(imbalanced(labels, seed=seed, ranks="label"))) for seed in (0, 1))
    assert first != other
    sizes = [np.bincount(labels[order(imbalanced(labels, seed=seed))]).tolist() for seed in (0, 1)]
    assert sizes[0] != sizes[1]


def test_a_ratio_of_one_leaves_nothing_out() -> None:
    labels = np.repeat(np.arange(4), 5)
    assert order(imbalanced(labels, tasks=2, ratio=1)) == order(disjoint(labels, tasks=2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 0.5}, "ratio must be a number of at least 1, largest class over smallest, got 0.5"),
        ({"ratio": float("inf")}, "ratio must be a number of at least 1"),
        ({"ratio": float("nan")}, "ratio must be a number of at least 1"),
        ({"ranks": "size"}, "unknown ranks 'size': use 'shuffled' or 'label'"),
    ],
)
def test_other_ratios_and_ranks_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        imbalanced([0, 1], tasks=2, **options)
