"""What learners have in common whose steps go down a gradient without waiting for the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from prol.learner import Learner
from prol.parts.fast_step import FastStep


class SteppedLearner(Learner):
    """A learner whose steps are taken by `_take_step`."""

    can_diverge: ClassVar[bool] = True
    _take_step: FastStep

    def _settle(self) -> None:
        self._take_step.settle()

    def report(self) -> Mapping[str, float]:
        return self._take_step.report()
