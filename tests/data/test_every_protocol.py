"""What holds for every protocol."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_cases import PROTOCOLS, cases, class_counts, order, samples_of_task

from prol import registry

every_protocol = pytest.mark.parametrize("name", PROTOCOLS)
properties = settings(max_examples=60, deadline=None, derandomize=True)

_LABELS = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]


def test_every_protocol_is_registered_under_its_name() -> None:
    assert {name: registry.protocol(name) for name in PROTOCOLS} == PROTOCOLS


@every_protocol
@properties
@given(data=st.data())
def test_every_sample_comes_once_but_for_those_a_long_tail_leaves_out(name: str, data: st.DataObject) -> None:
    labels, options = data.draw(cases(name))
    came = sorted(order(PROTOCOLS[name](labels, **options)))
    if name == "imbalanced":
        assert len(set(came)) == len(came)
        assert set(came) <= set(range(len(labels)))
    else:
        assert came == list(range(len(labels)))


@every_protocol
@properties
@given(data=st.data())
def test_every_class_belongs_to_one_task_and_no_task_is_without_classes_or_samples(
    name: str, data: st.DataObject
) -> None:
    labels, options = data.draw(cases(name))
    stream = PROTOCOLS[name](labels, **options)
    assert len(stream.task_classes) == options["tasks"]
    assert sorted(number for group in stream.task_classes for number in group) == sorted(set(labels))
    for task, group in enumerate(stream.task_classes):
        assert group
        assert samples_of_task(stream, task)


@every_protocol
@properties
@given(data=st.data())
def test_tasks_follow_each_other_and_only_their_last_chunk_may_be_small(name: str, data: st.DataObject) -> None:
    labels, options = data.draw(cases(name))
    stream = PROTOCOLS[name](labels, **options)
    tasks = [chunk.task for chunk in stream.chunks]
    assert tasks == sorted(tasks)
    for chunk, following in zip(stream.chunks, [*tasks[1:], None], strict=True):
        full = len(chunk.indices) == options["chunk"]
        assert full or (0 < len(chunk.indices) < options["chunk"] and following != chunk.task)


@every_protocol
@properties
@given(data=st.data())
def test_classes_are_taken_by_number_unless_they_are_shuffled(name: str, data: st.DataObject) -> None:
    labels, options = data.draw(cases(name))
    stream = PROTOCOLS[name](labels, **options | {"class_order": "label"})
    rows = [number for group in stream.task_classes for number in group]
    assert rows == sorted(rows)


@every_protocol
@properties
@given(data=st.data())
def test_the_same_arguments_give_the_same_stream_and_leave_the_labels_alone(name: str, data: st.DataObject) -> None:
    labels, options = data.draw(cases(name))
    given_labels = np.array(labels)
    first, again = PROTOCOLS[name](given_labels, **options), PROTOCOLS[name](labels, **options)
    assert [chunk.task for chunk in first.chunks] == [chunk.task for chunk in again.chunks]
    assert order(first) == order(again)
    assert first.task_classes == again.task_classes
    assert given_labels.tolist() == labels


@every_protocol
def test_another_seed_gives_another_order_of_samples_and_of_shuffled_classes(name: str) -> None:
    labels = np.repeat(np.arange(20), 10)
    first, other = (PROTOCOLS[name](labels, seed=seed, class_order="shuffled") for seed in (0, 1))
    assert order(first) != order(other)
    assert first.task_classes != other.task_classes
    plain, plain_other = (PROTOCOLS[name](labels, seed=seed) for seed in (0, 1))
    assert order(plain) != order(plain_other)


@every_protocol
def test_one_task_is_all_samples_in_one_shuffle(name: str) -> None:
    stream = PROTOCOLS[name](_LABELS, tasks=1, chunk=100, class_order="shuffled", seed=3)
    (chunk,) = stream.chunks
    came = chunk.indices.tolist()
    assert came != sorted(came)
    assert len(came) == (16 if name != "imbalanced" else 7)  # 4, 1, 1 and 1 of the four classes


# By gradual a single sample may come a little early or late.
@pytest.mark.parametrize("name", [name for name in PROTOCOLS if name != "gradual"])
def test_classes_of_one_sample_stay_in_a_task_each(name: str) -> None:
    counts = class_counts(PROTOCOLS[name]([5, 3, 4], tasks=3), [5, 3, 4])
    assert [list(task) for task in counts] == [[3], [4], [5]]


@every_protocol
def test_information_given_follows_the_boundaries_unless_requested_otherwise(name: str) -> None:
    def information(**options: Any) -> tuple[bool, bool]:
        stream = PROTOCOLS[name](_LABELS, tasks=2, **options)
        return stream.boundaries_told, stream.classes_announced

    walls = name in ("disjoint", "imbalanced")
    assert information() == (walls, walls)
    assert information(boundaries=True) == (True, True)
    assert information(boundaries=True, announce=False) == (True, False)
    assert information(boundaries=False) == (False, False)
    assert information(boundaries=False, announce=False) == (False, False)


@every_protocol
def test_information_given_does_not_change_the_order(name: str) -> None:
    silent, informed = (PROTOCOLS[name](_LABELS, tasks=2, boundaries=boundaries) for boundaries in (False, True))
    assert order(silent) == order(informed)


@every_protocol
def test_the_first_line_of_its_description_fits_a_table(name: str) -> None:
    first, *_ = (inspect.getdoc(PROTOCOLS[name]) or "").splitlines()
    assert first.endswith(".")
    assert len(first) < 90


@every_protocol
@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([0, 1], {"tasks": 3}, "tasks must be from 1 to the number of classes, 2, got 3"),
        ([0, 1], {"tasks": 0}, "tasks must be from 1 to the number of classes, 2, got 0"),
        ([0, 1], {"tasks": 1, "chunk": 0}, "chunk must be at least 1, got 0"),
        ([0, 1], {"tasks": 1, "seed": -1}, "seed must be 0 or more, got -1"),
        ([0, 1], {"tasks": 1, "class_order": "random"}, "unknown class_order 'random': use 'label' or 'shuffled'"),
        ([0, 1], {"tasks": 1, "boundaries": False, "announce": True}, "announce=True needs boundaries=True"),
        ([], {"tasks": 1}, "labels are empty"),
        ([[0, 1]], {"tasks": 1}, "one row of class numbers"),
        (["cat", "dog"], {"tasks": 1}, "one row of class numbers"),
        ([0.5, 1.0], {"tasks": 1}, "one row of class numbers"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(name: str, labels: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PROTOCOLS[name](labels, **options)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("blurry", "minor"),
        ("iblurry", "minor"),
        ("iblurry", "disjoint"),
        ("siblurry", "minor"),
        ("siblurry", "disjoint"),
    ],
)
@pytest.mark.parametrize("value", [-1, 100.5, float("nan")])
def test_a_percentage_is_from_0_to_100(name: str, option: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{option} must be a percentage from 0 to 100, got {value}"):
        PROTOCOLS[name](_LABELS, tasks=2, **{option: value})


@pytest.mark.parametrize(
    ("name", "options", "task_classes", "chunks"),
    [
        ("blurry", {"minor": 25}, ((2, 0), (3, 1)), [[8, 1, 5, 10, 0], [13, 3, 11], [7, 2, 15, 12, 6], [14, 9, 4]]),
        ("iblurry", {"minor": 50}, ((2, 0), (3, 1)), [[8, 2, 7, 9, 0], [11, 6, 10], [5, 1, 15, 13, 4], [14, 12, 3]]),
        ("siblurry", {"minor": 50}, ((2, 0, 3), (1,)), [[11, 10, 3, 13, 7], [5, 9, 1, 8, 0], [12, 2], [6, 14, 15, 4]]),
        ("gradual", {"width": 1.0}, ((2, 0), (3, 1)), [[8, 1, 3, 9, 0], [11, 2, 7], [4, 10, 15, 13, 6], [14, 12, 5]]),
        (
            "gradual",
            {"shape": "sigmoid"},
            ((2, 0), (3, 1)),
            [[8, 1, 3, 9, 0], [11, 2, 10], [7, 4, 15, 13, 6], [14, 12, 5]],
        ),
        ("imbalanced", {"ratio": 4}, ((2, 0), (3, 1)), [[2, 9, 10, 1, 11], [8], [4, 7, 12, 6]]),
    ],
)
def test_the_order_of_a_seed_never_changes_between_versions(
    name: str, options: dict[str, Any], task_classes: tuple[tuple[int, ...], ...], chunks: list[list[int]]
) -> None:
    stream = PROTOCOLS[name](_LABELS, tasks=2, chunk=5, seed=5, class_order="shuffled", **options)
    assert stream.task_classes == task_classes
    assert [chunk.indices.tolist() for chunk in stream.chunks] == chunks
