"""GSA's sums and weights against loops over samples."""

from __future__ import annotations

import math

import pytest
import torch
from prol.methods.replay.gradient_balance import class_weights, probability_sums, weighted_cross_entropy
from prol.methods.replay.mirrored_halves import halves_mirrored, with_halves_mirrored

LOGITS = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
ROWS = [0, 1, 1, 2, 0, 1]


def probabilities(row: torch.Tensor) -> list[float]:
    raised = [math.exp(float(x)) for x in row]
    return [x / sum(raised) for x in raised]


def test_sums_are_over_own_samples_and_those_of_others() -> None:
    expected = [[0.0, 0.0, 0.0] for _ in range(4)]
    for logits, row in zip(LOGITS, ROWS, strict=True):
        for other, p in enumerate(probabilities(logits)):
            expected[other][1 if other == row else 2] += p
        expected[row][0] += 1
    assert torch.allclose(probability_sums(LOGITS, torch.tensor(ROWS)), torch.tensor(expected, dtype=torch.float64))


def test_a_class_pulled_as_much_as_pushed_weighs_one_and_one_pushed_more_weighs_less() -> None:
    sums = torch.tensor([[10, 8, 2], [10, 9, 4], [10, 2, 4]], dtype=torch.float64)
    expected = [2 / (1 + math.exp(1 - a)) for a in (1.0, 0.25, 2.0)]
    assert class_weights(sums).tolist() == pytest.approx(expected)
    assert expected[1] < expected[0] == 1 < expected[2]


def test_a_class_that_was_never_pushed_weighs_one() -> None:
    assert class_weights(torch.tensor([[0, 0, 0], [5, 1, 0]], dtype=torch.float64)).tolist() == [1, 1]


def test_the_loss_is_weighted_by_the_class_and_divided_by_the_number_of_samples() -> None:
    weights = torch.tensor([0.5, 1.5, 1.0, 1.0], dtype=torch.float64)
    expected = -sum(
        float(weights[row]) * math.log(probabilities(logits)[row]) for logits, row in zip(LOGITS, ROWS, strict=True)
    ) / len(ROWS)
    assert float(weighted_cross_entropy(LOGITS, torch.tensor(ROWS), weights)) == pytest.approx(expected)


def test_each_half_is_mirrored_in_its_own_place() -> None:
    line = torch.arange(6.0).expand(1, 3, 6, 6)
    assert halves_mirrored(line)[0, 0, 0].tolist() == [2, 1, 0, 5, 4, 3]
    assert torch.equal(halves_mirrored(halves_mirrored(line)), line)
    doubled = with_halves_mirrored(line)
    assert torch.equal(doubled, torch.cat([line, halves_mirrored(line)]))
