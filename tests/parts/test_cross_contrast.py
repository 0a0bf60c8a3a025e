"""The contrast of two groups against a loop over pairs."""

from __future__ import annotations

import math

import pytest
import torch
from prol.methods.replay.cross_contrast import cross_contrast, softened_divergence

from prol.engine.similarity import unit


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_contrast(a: list, b: list, a_rows: list[int], b_rows: list[int]) -> float:
    """Over groups as lists."""
    if not a or not b:
        return 0.0
    total = 0.0
    for one, row in zip(a, a_rows, strict=True):
        scores = [math.exp(float(one @ other) / 0.07) for other in b]
        for score, other_row in zip(scores, b_rows, strict=True):
            if row == other_row:
                total += math.log(score / sum(scores))
    return -total / (len(a) * len(b))


@pytest.mark.parametrize("in_a", [[True, False, True, False, True], [True] * 5, [False] * 5])
@pytest.mark.parametrize("in_b", [[False, True, True, True], [True] * 4, [False] * 4])
def test_it_is_the_mean_over_all_pairs_of_two_groups(in_a: list[bool], in_b: list[bool]) -> None:
    a, b = unit(random(5, 3, seed=0)), unit(random(4, 3, seed=1))
    rows, other_rows = [0, 1, 0, 2, 1], [0, 0, 1, 2]
    same = torch.tensor(rows).unsqueeze(1) == torch.tensor(other_rows)
    found = cross_contrast(a, b, same, torch.tensor(in_a), torch.tensor(in_b))
    chosen, others = ([i for i, inside in enumerate(group) if inside] for group in (in_a, in_b))
    expected = slow_contrast(
        [a[i] for i in chosen], [b[j] for j in others], [rows[i] for i in chosen], [other_rows[j] for j in others]
    )
    assert float(found) == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_empty_group_gives_no_gradient_and_no_nan(dtype: torch.dtype) -> None:
    a = unit(random(3, 4, seed=2)).to(dtype).requires_grad_()
    nobody, everybody = torch.zeros(3, dtype=torch.bool), torch.ones(3, dtype=torch.bool)
    for groups in ((nobody, everybody), (everybody, nobody)):
        loss = cross_contrast(a, a, torch.ones(3, 3, dtype=torch.bool), *groups)
        assert float(loss.detach()) == 0
        assert not torch.autograd.grad(loss, a)[0].any()


def test_the_gradient_reaches_both_groups_but_nobody_outside() -> None:
    a, b = random(3, 4, seed=3).requires_grad_(), random(3, 4, seed=4).requires_grad_()
    inside = torch.tensor([True, True, False])
    loss = cross_contrast(unit(a), unit(b), torch.ones(3, 3, dtype=torch.bool), inside, inside)
    for gradient in torch.autograd.grad(loss, [a, b]):
        assert gradient.any(1).tolist() == inside.tolist()


def test_the_divergence_is_that_of_softened_predictions_times_their_temperature_squared() -> None:
    logits, others = random(3, 5, seed=5) * 3, random(3, 5, seed=6) * 3
    expected = 0.0
    for one, other in zip(logits, others, strict=True):
        p, q = ([math.exp(float(x) / 4) for x in row] for row in (one, other))
        p, q = [x / sum(p) for x in p], [x / sum(q) for x in q]
        expected += 16 * sum(x * math.log(x / y) for x, y in zip(p, q, strict=True)) / 3
    assert float(softened_divergence(logits, others, 4.0)) == pytest.approx(expected, abs=1e-12)
    assert float(softened_divergence(logits, logits, 4.0)) == pytest.approx(0, abs=1e-15)
