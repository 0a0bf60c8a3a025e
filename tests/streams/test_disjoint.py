from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prol.streams import Stream, disjoint

label_lists = st.lists(st.integers(-5, 30), min_size=1, max_size=120)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], dict[str, Any]]:
    labels = draw(label_lists)
    options = {
        "tasks": draw(st.integers(1, len(set(labels)))),
        "chunk": draw(st.integers(1, 20)),
        "seed": draw(st.integers(0, 2**40)),
        "class_order": draw(st.sampled_from(["label", "shuffled"])),
    }
    return labels, options


def order(stream: Stream) -> list[int]:
    return [int(i) for chunk in stream.chunks for i in chunk.indices]


@given(cases())
def test_every_sample_comes_exactly_once(case: tuple[list[int], dict[str, Any]]) -> None:
    labels, options = case
    assert sorted(order(disjoint(labels, **options))) == list(range(len(labels)))


@given(cases())
def test_every_class_is_in_exactly_one_task_and_only_there(case: tuple[list[int], dict[str, Any]]) -> None:
    labels, options = case
    stream = disjoint(labels, **options)
    assert sorted(c for group in stream.task_classes for c in group) == sorted(set(labels))
    for task, group in enumerate(stream.task_classes):
        met = {labels[i] for chunk in stream.chunks if chunk.task == task for i in chunk.indices}
        assert met == set(group)


@given(cases())
def test_task_sizes_differ_by_at_most_one_and_the_larger_come_first(case: tuple[list[int], dict[str, Any]]) -> None:
    labels, options = case
    sizes = [len(group) for group in disjoint(labels, **options).task_classes]
    assert len(sizes) == options["tasks"]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[-1] <= 1


@given(cases())
def test_tasks_follow_each_other_and_only_their_last_chunk_may_be_small(case: tuple[list[int], dict[str, Any]]) -> None:
    labels, options = case
    stream = disjoint(labels, **options)
    tasks = [chunk.task for chunk in stream.chunks]
    assert tasks == sorted(tasks)
    for chunk, following in zip(stream.chunks, [*tasks[1:], None], strict=True):
        full = len(chunk.indices) == options["chunk"]
        assert full or (0 < len(chunk.indices) < options["chunk"] and following != chunk.task)


@given(cases())
def test_dropping_the_surplus_gives_every_task_the_same_number_of_classes(
    case: tuple[list[int], dict[str, Any]],
) -> None:
    labels, options = case
    whole, dropped = disjoint(labels, **options), disjoint(labels, **options, drop_surplus=True)
    each = len(set(labels)) // options["tasks"]
    assert [len(group) for group in dropped.task_classes] == [each] * options["tasks"]
    kept = [c for group in dropped.task_classes for c in group]
    assert kept == [c for group in whole.task_classes for c in group][: len(kept)]
    assert sorted(order(dropped)) == [i for i, label in enumerate(labels) if label in kept]


@given(cases())
def test_the_same_arguments_give_the_same_stream_and_leave_the_labels_alone(
    case: tuple[list[int], dict[str, Any]],
) -> None:
    labels, options = case
    given_labels = np.array(labels)
    first, again = disjoint(given_labels, **options), disjoint(labels, **options)
    assert order(first) == order(again)
    assert first.task_classes == again.task_classes
    assert given_labels.tolist() == labels


def test_another_seed_gives_another_order_of_samples_and_of_shuffled_classes() -> None:
    labels = np.repeat(np.arange(20), 10)
    first, other = (disjoint(labels, seed=seed, class_order="shuffled") for seed in (0, 1))
    assert order(first) != order(other)
    assert first.task_classes != other.task_classes
    plain, plain_other = (disjoint(labels, seed=seed) for seed in (0, 1))
    assert order(plain) != order(plain_other)
    assert plain.task_classes == plain_other.task_classes


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


def test_the_stream_says_what_the_learner_is_told() -> None:
    stream = disjoint([0, 1], tasks=2, chunk=4, seed=9, announce=False)
    assert (stream.boundaries_told, stream.classes_announced) == (True, False)
    silent = disjoint([0, 1], tasks=2, boundaries=False, announce=False)
    assert (silent.boundaries_told, silent.classes_announced) == (False, False)


def test_the_order_of_a_seed_never_changes_between_versions() -> None:
    stream = disjoint([0, 0, 0, 1, 1, 1, 2, 2], tasks=2, chunk=4, seed=5, class_order="shuffled")
    assert (stream.task_classes, order(stream)) == (((0, 2), (1,)), [1, 6, 0, 7, 2, 3, 4, 5])


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 1], {"tasks": 3}, "tasks must be from 1 to the number of classes, 2, got 3"),
        ([0, 1], {"tasks": 0}, "tasks must be from 1 to the number of classes, 2, got 0"),
        ([0, 1], {"tasks": 1, "chunk": 0}, "chunk must be at least 1, got 0"),
        ([0, 1], {"tasks": 1, "seed": -1}, "seed must be 0 or more, got -1"),
        ([0, 1], {"tasks": 1, "class_order": "random"}, "unknown class_order 'random': use 'label' or 'shuffled'"),
        ([0, 1], {"tasks": 1, "boundaries": False}, "announce=True needs boundaries=True"),
        ([], {"tasks": 1}, "labels are empty"),
        ([[0, 1]], {"tasks": 1}, "one row of class numbers"),
        (["cat", "dog"], {"tasks": 1}, "one row of class numbers"),
        ([0.5, 1.0], {"tasks": 1}, "one row of class numbers"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(labels: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        disjoint(labels, **options)
