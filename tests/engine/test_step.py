"""Losses that are not finite are reported, on a CPU at once."""

from __future__ import annotations

import pytest
import torch

from prol.engine.step import Later, LossWatch


def numbers(total: float) -> Later:
    return Later(["total", "ce"], torch.tensor([total, 1.0]))


@pytest.mark.parametrize("loss", [torch.nan, torch.inf, -torch.inf])
def test_a_loss_that_is_not_finite_is_refused_at_once(loss: float) -> None:
    watch = LossWatch(lr=0.5)
    with pytest.raises(
        ValueError, match=r"not finite at step 7 of this task; nothing was learnt from it: lower lr=0.5"
    ):
        watch.note(numbers(loss), 7, at_once=True)
    watch.flush()  # reported once


def test_finite_losses_pass() -> None:
    watch = LossWatch(lr=0.5)
    for step in range(5):
        watch.poll()
        watch.note(numbers(float(step)), step, at_once=step % 2 == 0)
    watch.flush()


def test_a_loss_under_way_is_refused_two_steps_later_or_when_flushed() -> None:
    watch = LossWatch(lr=0.5)
    watch.note(numbers(torch.nan), 3, at_once=False)
    watch.poll()
    watch.note(numbers(1.0), 4, at_once=False)
    with pytest.raises(ValueError, match="was not finite at step 3 of a task, in an earlier chunk"):
        watch.poll()
    assert watch.last_good == {}
    watch.flush()
    assert watch.last_good["total"] == 1.0
    watch.note(numbers(torch.inf), 5, at_once=False)
    with pytest.raises(ValueError, match="was not finite at step 5"):
        watch.flush()


def test_what_is_forgotten_is_not_reported() -> None:
    watch = LossWatch(lr=0.5)
    watch.note(numbers(torch.nan), 3, at_once=False)
    watch.restart({"total": 4.0})
    assert watch.last_good == {"total": 4.0}
    watch.flush()


def test_numbers_are_a_mapping_that_equals_a_dict() -> None:
    later = numbers(2.0)
    assert later.ready
    assert later == {"total": 2.0, "ce": 1.0}
    assert (len(later), list(later), repr(later)) == (2, ["total", "ce"], "{'total': 2.0, 'ce': 1.0}")
