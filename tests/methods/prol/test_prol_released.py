"""The preset that reproduces the published code, with its needs and its faults."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from methods.small_streams import changed_rows, make_prol, pictures, same_state, tensors
from prol.methods.prol.learner import PROL


def make(**options: Any) -> PROL:
    return make_prol(preset="released", **{"chunk": 4, **options})


def trained(**options: Any) -> PROL:
    learner = make(**options)
    for classes in ([0, 1, 2, 3], [4, 5, 6, 7]):
        learner.boundary(classes)
        for step in range(3):
            learner.learn(pictures(classes, step), classes)
    return learner


def test_unannounced_classes_are_refused_and_nothing_changes() -> None:
    learner = make()
    twin = learner.clone()
    with pytest.raises(ValueError, match=r"released.*boundary"):
        learner.learn(pictures([0, 1]), [0, 1])
    assert same_state(learner, twin)
    learner.boundary([0, 1])
    learner.learn(pictures([0, 1]), [0, 1])
    twin = learner.clone()
    with pytest.raises(ValueError, match=r"released.*boundary"):
        learner.learn(pictures([0, 2]), [0, 2])
    assert same_state(learner, twin)
    learner.learn(pictures([1, 0]), [1, 0])
    assert not same_state(learner, twin)


@pytest.mark.parametrize("announced", [None, [], [5, 4], [4, 6, 5], [2, 3], [0, 1], [-1, 9]], ids=str)
def test_classes_that_are_missing_or_out_of_label_order_are_refused_and_nothing_changes(announced: Any) -> None:
    learner = make()
    learner.boundary([0, 3])
    learner.learn(pictures([0, 3]), [0, 3])
    twin = learner.clone()
    with pytest.raises(ValueError, match=r"released.*announced.*order"):
        learner.boundary(announced)
    assert same_state(learner, twin)
    learner.boundary([4, 6])
    assert learner.classes == [0, 3, 4, 6]


def test_an_answer_depends_on_the_batch() -> None:
    learner = trained()
    images = pictures([0, 4, 1, 5, 2, 6, 3, 7], seed=9)
    together = learner.predict(images)
    alone = torch.cat([learner.predict(image[None]) for image in images])
    assert (together - alone).abs().max() > 1e-4


def test_batches_at_test_are_of_the_configured_chunk() -> None:
    learner = trained()
    images = pictures([0, 4, 1, 5, 2, 6, 3, 7, 0, 1], seed=9)
    by_hand = torch.cat([learner.predict(images[i : i + 4]) for i in range(0, 10, 4)])
    assert torch.equal(learner.predict(images), by_hand)
    assert "batch_independence" in learner.exemptions()
    assert make_prol().exemptions() == {}


def test_scaler_rows_of_the_first_task_are_overwritten_by_later_ones() -> None:
    learner = make()
    learner.boundary([0, 1, 2, 3])
    learner.learn(pictures([0, 1, 2, 3]), [0, 1, 2, 3])
    learner.boundary([4, 5, 6, 7])
    before = tensors(learner)
    for step in range(3):
        learner.learn(pictures([4, 5, 6, 7], step), [4, 5, 6, 7])
    after = tensors(learner)
    for name in ("source/scaler", "source/shifter"):
        moved = changed_rows(before[name], after[name])
        assert moved
        assert moved <= {0, 1, 2, 3}


def test_the_generalisation_loss_lacks_its_second_term() -> None:
    reports = {}
    for off_diagonal in (False, True):
        learner = make(gen_off_diagonal=off_diagonal)
        learner.boundary([0, 1, 2, 3])
        learner.learn(pictures([0, 1, 2, 3]), [0, 1, 2, 3])
        reports[off_diagonal] = learner.report()["gen"]
    default = make()
    default.boundary([0, 1, 2, 3])
    default.learn(pictures([0, 1, 2, 3]), [0, 1, 2, 3])
    assert default.report()["gen"] == reports[False] < reports[True]


def test_samples_of_an_earlier_task_are_refused_and_change_nothing() -> None:
    learner = trained()
    learner.boundary([8, 9])
    twin = learner.clone()
    with pytest.raises(ValueError, match="earlier tasks"):
        learner.learn(pictures([8, 9, 0, 5]), [8, 9, 0, 5])
    assert same_state(learner, twin)
