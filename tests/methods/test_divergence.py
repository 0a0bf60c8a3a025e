"""A loss that is not finite: every method that is trained by gradients refuses the chunk, and nothing has changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from methods.every_method import METHODS, make
from methods.small_streams import pictures, same_state
from prol import registry
from prol.methods.gradient import GradientLearner

TRAINED = [name for name in METHODS if issubclass(registry.method(name), GradientLearner)]


@pytest.mark.parametrize(
    ("labels", "steps"), [([0, 1], 0), ([0, 2], 0), ([0, 2], 50)], ids=["known classes", "a new class", "a new task"]
)
@pytest.mark.parametrize("method", TRAINED)
def test_a_loss_that_is_not_finite_is_refused_and_changes_nothing(method: str, labels: list[int], steps: int) -> None:
    learner = make(method)
    learner.learn(pictures([0, 1]), [0, 1])
    if learner.clock is not None:
        learner.clock.steps += steps
    learner.preprocessing = replace(learner.preprocessing, std=(0.0, 0.0, 0.0))
    twin = learner.clone()
    with pytest.raises(ValueError, match="not finite"):
        learner.learn(pictures(labels, 1), labels)
    assert same_state(learner, twin)
