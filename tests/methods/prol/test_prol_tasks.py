"""When PROL begins a task without being told, and what starts anew with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from methods.small_streams import make_prol, pictures, tensors
from prol.methods.prol.learner import PROL

SOFT = {"threshold": 1e9}
"""Every step turns soft at once."""
HARD = {"threshold": 0.0}
"""No step ever turns soft."""


def learn(learner: PROL, *labels: int, seed: int = 0) -> None:
    learner.learn(pictures(labels, seed), list(labels))


def heads(learner: PROL) -> list[int]:
    """First class row of each task's head."""
    return learner.heads.first_rows


def test_the_first_chunk_begins_the_first_task_with_all_its_classes() -> None:
    learner = make_prol(**HARD)
    learn(learner, 4, 2, 9)
    assert heads(learner) == [0]
    assert learner.classes == [4, 2, 9]


@pytest.mark.parametrize("options", [SOFT, HARD], ids=["soft", "hard"])
def test_an_unseen_label_joins_a_task_of_one_class_even_when_settled(options: dict[str, float]) -> None:
    learner = make_prol(**options)
    for step in range(52):
        learn(learner, 0, 0, seed=step)
    learn(learner, 1, 1)
    assert heads(learner) == [0]
    assert learner.clock.number == 0


def test_an_unseen_label_begins_a_task_when_two_classes_are_gathered_and_the_mode_is_soft() -> None:
    learner = make_prol(**SOFT)
    learn(learner, 0, 1)
    assert learner.pace.soft
    learn(learner, 2, 2)
    assert heads(learner) == [0, 2]
    assert learner.clock.number == 1


@pytest.mark.parametrize(("steps", "expected"), [(49, [0]), (50, [0, 2])])
def test_while_hard_an_unseen_label_begins_a_task_only_after_fifty_steps(steps: int, expected: list[int]) -> None:
    learner = make_prol(**HARD)
    for step in range(steps):
        learn(learner, step % 2, seed=step)
    learn(learner, 2, 2)
    assert heads(learner) == expected


def test_classes_arriving_one_at_a_time_gather_in_tasks_of_two() -> None:
    learner = make_prol(**SOFT)
    for label in range(7):
        for step in range(2):
            learn(learner, label, label, seed=step)
    assert heads(learner) == [0, 2, 4, 6]


def test_several_unseen_labels_of_one_chunk_share_the_new_task() -> None:
    learner = make_prol(**SOFT)
    learn(learner, 0, 1)
    learn(learner, 5, 1, 6, 7)
    assert heads(learner) == [0, 2]
    assert learner.classes == [0, 1, 5, 6, 7]


def test_both_numbers_of_the_rule_are_options() -> None:
    learner = make_prol(task_min_classes=3, task_min_steps=2, **HARD)
    learn(learner, 0, 1)
    learn(learner, 0, 1)
    learn(learner, 2)
    assert heads(learner) == [0]
    learn(learner, 3)
    assert heads(learner) == [0, 3]


def test_known_labels_never_begin_a_task() -> None:
    learner = make_prol(**SOFT)
    learn(learner, 0, 1)
    for step in range(5):
        learn(learner, 1, 0, seed=step)
    assert heads(learner) == [0]


# What starts anew


def test_a_label_that_joins_restarts_hard_mode_but_not_the_optimiser() -> None:
    learner = make_prol(t_max=4, **SOFT)
    for step in range(4):
        learn(learner, 0, 0, seed=step)
    assert learner.pace.soft_steps == 4
    assert learner.report()["lr"] < 0.01
    learn(learner, 1, 1)
    assert heads(learner) == [0]
    assert learner.report()["lr"] == 0.01
    assert learner.pace.soft_steps == 1
    assert learner.adam.step == 5
    assert learner.clock.steps == 5


def test_a_joining_label_leaves_hard_mode_on_until_the_loss_is_low_again() -> None:
    learner = make_prol(**SOFT)
    learn(learner, 0, 0)
    assert learner.pace.soft
    learner.pace.threshold = 0.0
    learn(learner, 1, 1)
    assert not learner.pace.soft


def test_a_task_begun_by_the_rule_restarts_optimiser_schedule_and_steps() -> None:
    learner = make_prol(t_max=4, **SOFT)
    for step in range(4):
        learn(learner, 0, 1, seed=step)
    learn(learner, 2, 2)
    assert learner.clock.number == 1
    assert learner.adam.step == learner.clock.steps == learner.pace.soft_steps == 1
    assert learner.report()["lr"] == 0.01
    assert learner.report()["lr_norm"] == pytest.approx(0.01 * 0.0005)


def test_a_task_begun_by_the_rule_is_as_one_begun_by_a_boundary() -> None:
    unaware, told = make_prol(**SOFT), make_prol(**SOFT)
    for learner in (unaware, told):
        for step in range(3):
            learn(learner, 0, 1, seed=step)
    told.boundary()
    for learner in (unaware, told):
        learn(learner, 2, 3, 0)
        learn(learner, 2, 3, 1)
    mine, others = tensors(unaware), tensors(told)
    assert mine.keys() == others.keys()
    assert all(torch.equal(mine[name], others[name]) for name in mine)
    assert heads(unaware) == heads(told) == [0, 2]


# Told from outside


def test_once_told_unseen_labels_join_the_current_task() -> None:
    learner = make_prol(**SOFT)
    learner.boundary()
    for label in range(6):
        learn(learner, label, label)
    assert heads(learner) == [0]
    learner.boundary()
    for label in range(6, 9):
        learn(learner, label, label)
    assert heads(learner) == [0, 6]


def test_unseen_labels_join_an_announced_task_too_and_restart_hard_mode() -> None:
    learner = make_prol(**SOFT)
    learner.boundary([0, 1])
    for step in range(3):
        learn(learner, 0, 1, seed=step)
    assert learner.pace.soft_steps == 3
    learn(learner, 2, 1)
    assert heads(learner) == [0]
    assert learner.pace.soft_steps == 1


def test_repeated_boundaries_without_data_begin_one_task_only() -> None:
    learner = make_prol()
    learner.boundary()
    learner.boundary()
    learn(learner, 0, 1)
    assert heads(learner) == [0]
    learner.boundary()
    learner.boundary()
    learner.boundary([2, 3])
    assert heads(learner) == [0, 2]
    assert learner.clock.number == 1


def test_a_task_may_bring_old_classes_only() -> None:
    learner = make_prol()
    learner.boundary([0, 1])
    learn(learner, 0, 1)
    learner.boundary([1, 0])
    for step in range(3):
        learn(learner, 0, 1, seed=step)
    learner.boundary()
    learn(learner, 1, 0)
    assert learner.classes == [0, 1]
    assert learner.predict(pictures([0, 1])).isfinite().all()
    learn(learner, 2, 0)
    assert learner.predict(pictures([0, 1, 2])).shape == (3, 3)


def test_a_boundary_restarts_optimiser_and_schedule() -> None:
    learner = make_prol(**SOFT)
    learner.boundary([0, 1])
    for step in range(3):
        learn(learner, 0, 1, seed=step)
    learner.boundary([2, 3])
    assert learner.adam.step == learner.clock.steps == learner.pace.soft_steps == 0
    assert not learner.pace.soft


def test_text_and_number_labels_mix_without_boundaries() -> None:
    learner = make_prol(**SOFT)
    learner.learn(pictures([0, 1]), ["1", 1])
    learner.learn(pictures([2, 3]), np.array(["2", "3"]))
    assert learner.classes == ["1", 1, "2", "3"]
    assert heads(learner) == [0, 2]
