from __future__ import annotations

import math

import pytest
import torch
from prol.methods.replay.mixup import Mixture, draw_beta, mixed_cross_entropy, mixed_images, mixed_rows


def test_images_and_their_loss_are_mixed_by_weight() -> None:
    random = torch.Generator().manual_seed(0)
    images, others = torch.rand(2, 3, 3, 4, 4, generator=random, dtype=torch.float64)
    logits = torch.randn(3, 5, generator=random, dtype=torch.float64)
    rows, other_rows, weights = [0, 3, 4], [2, 3, 1], [0.0, 0.3, 0.75]
    mixed = mixed_images(images, others, torch.tensor(weights, dtype=torch.float64))
    whole = 0.0
    for i, weight in enumerate(weights):
        torch.testing.assert_close(mixed[i], (1 - weight) * images[i] + weight * others[i])
        total = sum(math.exp(float(logit)) for logit in logits[i])
        for share, row in ((1 - weight, rows[i]), (weight, other_rows[i])):
            whole -= share * math.log(math.exp(float(logits[i, row])) / total)
    found = mixed_cross_entropy(logits, torch.tensor(rows), torch.tensor(other_rows), torch.tensor(weights))
    assert float(found) == pytest.approx(whole / 3)


def test_a_mixture_of_two_classes_is_of_neither() -> None:
    rows, others = torch.tensor([4, 4, 4, 2]), torch.tensor([4, 1, 1, 0])
    assert mixed_rows(rows, others, torch.tensor([0.5, 0.5, 0.0, 0.1])).tolist() == [4, -2, 4, -4]


def test_mixtures_are_put_end_to_end() -> None:
    one = Mixture(*(torch.tensor([i]) for i in range(5)))
    other = Mixture(*(torch.tensor([10 + i, 20 + i]) for i in range(5)))
    parts = Mixture.together(one, other).parts()
    assert [part.tolist() for part in parts.values()] == [[i, 10 + i, 20 + i] for i in range(5)]


@pytest.mark.parametrize("alpha", [0.4, 1.0, 3.0])
def test_weights_have_the_moments_of_their_distribution(alpha: float) -> None:
    drawn = draw_beta(alpha, 20000, torch.Generator().manual_seed(1))
    assert len(drawn) == 20000
    assert 0 <= float(drawn.min()) <= float(drawn.max()) <= 1
    assert float(drawn.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(drawn.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.03)
