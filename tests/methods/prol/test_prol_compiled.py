"""What torch's compiler makes of PROL's step: the same gradients, also where terms are switched off; and few shapes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from methods.small_streams import make_prol, pictures
from prol.backbones.acceleration import compiled
from prol.engine.adam import part_gradients
from prol.methods.prol.losses import loss_terms

KINDS = [0, 1, 2, 0]
CODE = (
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles for a CPU with g++"),
)


def traced(function: Callable[..., Any]) -> Callable[..., Any]:
    """What torch's compiler makes of a function before it generates any code."""
    fast: Callable[..., Any] = torch.compile(function, dynamic=False, backend="aot_eager")
    return fast


def gradients_of_a_step(row: str, fast: Callable[..., Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """A step's loss terms, and its gradients."""
    learner = make_prol(ablation=row)
    learner.network.fast = lambda function: fast(function) if function is loss_terms else function
    learner.boundary([0, 1, 2])
    staged = learner.staged(learner.backbone.read(pictures(KINDS)))()
    inputs = learner.rendered(*staged)
    total, terms, parts = learner.network.losses(*learner.network.query(inputs), torch.tensor(KINDS))
    return terms | {"total": total.detach()}, part_gradients(total, parts)


@pytest.mark.parametrize("compiler", [traced, pytest.param(compiled, marks=CODE)], ids=["traced", "compiled"])
@pytest.mark.parametrize("row", ["ft_inter", "ft_inter_intra", "generator"])
def test_a_loss_that_is_one_term_and_nothing_else_keeps_its_gradients_compiled(
    row: str, compiler: Callable[..., Any]
) -> None:
    terms, gradients = gradients_of_a_step(row, lambda function: function)
    fast_terms, fast_gradients = gradients_of_a_step(row, compiler)
    assert terms["total"] == terms["ce"]
    assert any(gradient.any() for gradient in gradients.values())
    torch.testing.assert_close(fast_terms, terms)
    torch.testing.assert_close(fast_gradients, gradients)


@pytest.mark.parametrize(("tasks", "new"), [(10, 25), pytest.param(50, 5, marks=pytest.mark.slow)])
def test_new_classes_bring_no_new_shapes_to_the_compiler_after_the_second_task(tasks: int, new: int) -> None:
    learner, layouts = make_prol(), []
    met: list[tuple[object, ...]] = []

    def noting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            leaves = tree_leaves(arguments)
            met.append((function, *(leaf.shape if isinstance(leaf, Tensor) else leaf for leaf in leaves)))
            return function(*arguments)

        return call

    learner.network.fast = noting
    shapes = []
    for task in range(tasks):
        classes = list(range(new * task, new * task + new))
        learner.boundary(classes)
        learner.learn(pictures(KINDS), [classes[kind] for kind in KINDS])
        learner.predict(pictures(KINDS))
        shapes.append(set(met))
        layouts.append(learner.network.heads.layout())
        met.clear()
    assert len(set(layouts[1:])) == 1
    assert all(found <= shapes[0] | shapes[1] for found in shapes)
    assert len(shapes[1]) >= 5
