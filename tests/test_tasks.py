"""When a task begins, with and without given boundaries."""

from __future__ import annotations

import pytest

from prol.learner import TaskClock


def test_the_first_class_begins_the_first_task() -> None:
    clock = TaskClock()
    assert clock.number == -1
    assert clock.begins(0, boundary=False)
    clock.begin(0)
    assert (clock.number, clock.first_row, clock.steps) == (0, 0, 0)


@pytest.mark.parametrize(
    ("classes", "steps", "soft", "begins"),
    [
        (1, 0, False, False),
        (1, 50, False, False),
        (1, 0, True, False),
        (1, 1000, True, False),
        (2, 0, False, False),
        (2, 49, False, False),
        (2, 50, False, True),
        (2, 51, False, True),
        (2, 0, True, True),
        (7, 0, True, True),
        (7, 49, False, False),
    ],
)
def test_an_unseen_class_begins_a_task_when_two_are_gathered_and_the_task_is_settled(
    classes: int, steps: int, soft: bool, begins: bool
) -> None:
    clock = TaskClock()
    clock.begin(10)
    clock.steps = steps
    clock.soft = lambda: soft
    assert clock.begins(10 + classes, boundary=False) is begins


def test_both_numbers_of_the_rule_are_options() -> None:
    clock = TaskClock(min_classes=3, min_steps=5)
    clock.begin(0)
    clock.steps = 5
    assert not clock.begins(2, boundary=False)
    assert clock.begins(3, boundary=False)


def test_once_a_boundary_was_given_unseen_classes_join_whatever_the_task_is_like() -> None:
    clock = TaskClock()
    assert clock.begins(0, boundary=True)
    clock.begin(0)
    clock.steps = 1000
    clock.soft = lambda: True
    assert not clock.begins(20, boundary=False)


def test_after_a_boundary_before_anything_the_first_class_still_has_a_task() -> None:
    clock = TaskClock(bounded=True)
    assert clock.begins(0, boundary=False)


def test_a_boundary_begins_a_task_unless_the_current_one_is_empty() -> None:
    clock = TaskClock()
    clock.begin(0)
    assert not clock.begins(0, boundary=True)
    assert clock.begins(1, boundary=True)
    clock.steps = 1
    assert clock.begins(0, boundary=True)


def test_beginning_counts_up_and_starts_the_steps_anew() -> None:
    clock = TaskClock()
    clock.begin(0)
    clock.steps = 9
    clock.begin(4)
    assert (clock.number, clock.first_row, clock.steps) == (1, 4, 0)
