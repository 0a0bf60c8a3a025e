"""Losses that are not finite are told of, on a CPU at once."""

from __future__ import annotations

import pytest
import torch

from prol.parts.loss_watch import LossWatch


@pytest.mark.parametrize("loss", [torch.nan, torch.inf, -torch.inf])
def test_a_loss_that_is_not_finite_is_told_at_once(loss: float) -> None:
    watch = LossWatch(lr=0.5)
    with pytest.raises(
        ValueError, match=r"not finite at step 7 of this task; nothing was learnt from it: lower lr=0.5"
    ):
        watch.note(torch.tensor(loss), 7)
    watch.settle()  # told once


def test_finite_losses_pass() -> None:
    watch = LossWatch(lr=0.5)
    for step in range(5):
        watch.poll()
        watch.note(torch.tensor(float(step)), step)
    watch.settle()
