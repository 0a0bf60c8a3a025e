"""A loss that is not finite: every method that is trained by gradients refuses the chunk, and nothing has changed."""

from __future__ import annotations

import pytest
import torch

from methods.every_method import METHODS, make
from methods.small_streams import pictures, same_state
from prol import registry
from prol.methods.gradient import GradientLearner

TRAINED = [name for name in METHODS if issubclass(registry.method(name), GradientLearner) and name != "prol"]
"""PROL clamps scalers in every step, so that such values would not stay; its own tests diverge by a large rate."""


@pytest.mark.parametrize(
    ("labels", "steps"), [([0, 1], 0), ([0, 2], 0), ([0, 2], 50)], ids=["known classes", "a new class", "a new task"]
)
@pytest.mark.parametrize("method", TRAINED)
def test_a_loss_that_is_not_finite_is_refused_and_changes_nothing(method: str, labels: list[int], steps: int) -> None:
    learner = make(method)
    learner.learn(pictures([0, 1]), [0, 1])
    with torch.no_grad():
        for tensor in learner.trained_tensors():
            tensor.fill_(torch.finfo(tensor.dtype).max)
    if learner.clock is not None:
        learner.clock.steps += steps
    twin = learner.clone()
    with pytest.raises(ValueError, match=r"not finite.*lr"):
        learner.learn(pictures(labels, 1), labels)
    assert same_state(learner, twin)
