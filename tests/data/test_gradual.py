from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray
from stream_cases import Case, cases, class_counts, order, own_task

from prol.data.streams import Stream, disjoint, gradual

properties = settings(max_examples=100, deadline=None, derandomize=True)

shapes = pytest.mark.parametrize("shape", ["linear", "sigmoid"])


def groups_in_time(stream: Stream, labels: Any) -> NDArray[np.int64]:
    """The task that each sample's class belongs to, in the order of time."""
    home = own_task(stream)
    return np.array([home[int(labels[i])] for i in order(stream)])


def rise(time: NDArray[np.float64], wall: float, half: float, shape: str) -> NDArray[np.float64]:
    """The probability of the next task's classes around a wall, by its definition."""
    if half == 0:
        return (time > wall).astype(float)
    place = np.clip((time - wall) / half, -1, 1)
    if shape == "linear":
        return (place + 1) / 2
    low, high, here = (1 / (1 + np.exp(-6 * x)) for x in (-1.0, 1.0, place))
    return (here - low) / (high - low)


@properties
@given(cases("gradual"))
def test_at_any_moment_each_task_has_brought_what_it_should_to_within_three_samples(case: Case) -> None:
    labels, options = case
    stream = gradual(labels, **options)
    group = groups_in_time(stream, labels)
    sizes = np.bincount(group, minlength=options["tasks"])
    walls, time = np.cumsum(sizes), np.arange(len(labels)) + 0.5
    for task in range(1, options["tasks"]):
        half = options["width"] / 2 * min(sizes[task - 1], sizes[task])
        expected = np.cumsum(rise(time, walls[task - 1], half, options["shape"]))
        assert np.abs(np.cumsum(group >= task) - expected).max() <= 3


@properties
@given(cases("gradual"))
def test_tasks_are_as_long_as_their_classes_have_samples(case: Case) -> None:
    labels, options = case
    stream = gradual(labels, **options)
    lengths = [sum(len(chunk.indices) for chunk in stream.chunks if chunk.task == t) for t in range(options["tasks"])]
    assert lengths == [sum(labels.count(number) for number in group) for group in stream.task_classes]


@properties
@given(cases("gradual"))
def test_without_width_classes_are_where_disjoint_has_them(case: Case) -> None:
    labels, options = case
    stream = gradual(labels, **options | {"width": 0})
    shared = {name: options[name] for name in ("tasks", "chunk", "seed", "class_order")}
    assert class_counts(stream, labels) == class_counts(disjoint(labels, **shared), labels)


@shapes
@pytest.mark.parametrize("width", [0.2, 0.5, 0.9])
def test_outside_the_zones_only_the_own_classes_come(shape: str, width: float) -> None:
    labels = np.repeat(np.arange(5), 200)
    group = groups_in_time(gradual(labels, tasks=5, width=width, shape=shape), labels)
    distance = np.abs((np.arange(1000) + 0.5 + 100) % 200 - 100)  # from the nearest wall
    outside = distance > width * 100 + 2
    assert outside.sum() >= 50
    assert (group[outside] == np.arange(1000)[outside] // 200).all()
    inside = group[~outside]
    assert (inside != np.arange(1000)[~outside] // 200).any()


@shapes
def test_at_full_width_a_task_is_handing_over_all_the_time(shape: str) -> None:
    labels = np.repeat(np.arange(3), 400)
    group = groups_in_time(gradual(labels, tasks=3, width=1, shape=shape), labels)
    middle = group[400:800].reshape(8, 50)
    assert (middle[:3] == 0).any()
    assert (middle[-3:] == 2).any()
    assert not (middle[-4:] == 0).any()
    assert not (middle[:4] == 2).any()


@shapes
def test_the_share_of_the_next_task_only_rises_across_the_zone(shape: str) -> None:
    labels = np.repeat([0, 1], 4000)
    group = groups_in_time(gradual(labels, tasks=2, width=1, shape=shape), labels)
    shares = group[2000:6000].reshape(10, 400).mean(axis=1)
    assert (np.diff(shares) > 0).all()
    assert shares[0] < 0.06
    assert shares[-1] > 0.94
    assert shares + shares[::-1] == pytest.approx(1, abs=0.02)


def test_a_sigmoid_turns_faster_than_a_line() -> None:
    labels = np.repeat([0, 1], 4000)
    line, curve = (groups_in_time(gradual(labels, tasks=2, width=1, shape=shape), labels) for shape in shapes.args[1])
    early = slice(2000, 3000)
    assert curve[early].sum() < line[early].sum() / 2


def test_neighbours_of_unequal_length_hand_over_within_the_shorter() -> None:
    labels = np.repeat([0, 1, 2], [1000, 100, 1000])
    group = groups_in_time(gradual(labels, tasks=3, width=1), labels)
    assert set(group[:948]) == {0}
    assert set(group[1152:]) == {2}
    assert np.bincount(group[948:1152]).tolist() == [52, 100, 52]


def test_classes_of_a_task_are_mixed() -> None:
    labels = np.repeat(np.arange(4), 50)
    first = [int(labels[i]) for i in order(gradual(labels, tasks=2))][:50]
    assert first != sorted(first)
    assert set(first) == {0, 1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": -0.1}, "width must be from 0 to 1, a share of a task's length, got -0.1"),
        ({"width": 50}, "width must be from 0 to 1"),
        ({"width": float("nan")}, "width must be from 0 to 1"),
        ({"shape": "cosine"}, "unknown shape 'cosine': use 'linear' or 'sigmoid'"),
    ],
)
def test_other_widths_and_shapes_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gradual([0, 1], tasks=2, **options)
