"""Predictions for images that were just learnt as if they had not been, against learning all others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from methods.prol_plus.small_prol_plus import make
from methods.small_streams import pictures
from prol.backbones import ViT
from prol.methods.closed_form.moments import ClassTotals, Totals
from prol.methods.prol_plus.gaussian import Familiarity, Gaussian, Overall
from prol.methods.prol_plus.leave_one_out import left_out

CLASSES, WIDTH = 12, 30


def drawn(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = np.random.default_rng(seed)
    rows = np.arange(count) % CLASSES
    spread = np.linspace(0.3, 2, WIDTH)
    x: NDArray[np.float64] = random.normal(size=(CLASSES, WIDTH))[rows] + random.normal(size=(count, WIDTH)) * spread
    return torch.from_numpy(x), torch.from_numpy(rows)


def solved(x: torch.Tensor, rows: torch.Tensor) -> tuple[Familiarity, ClassTotals]:
    totals, levels = Totals.of(x, rows, CLASSES + 1), torch.zeros(WIDTH)
    gaussian = Gaussian.of(totals, levels, 300.0)
    overall = Overall.of(gaussian, ClassTotals(totals.sums, totals.counts), lambda: totals, levels, 300.0)
    return Familiarity.of(gaussian, overall), ClassTotals(totals.sums, totals.counts)


@pytest.mark.parametrize(("count", "tolerance"), [(2000, 0.01), (400, 0.05)])
def test_an_image_left_out_scores_as_if_the_others_alone_had_been_learnt(count: int, tolerance: float) -> None:
    x, rows = drawn(count, seed=0)
    scores, familiarity = left_out(*solved(x, rows), x[:10], rows[:10])
    for place in range(10):
        rest = torch.arange(count) != place
        others, _ = solved(x[rest], rows[rest])
        expected = others.gaussian.head().scores(x[place : place + 1])[0]
        torch.testing.assert_close(scores[place], expected, rtol=0, atol=tolerance)
        torch.testing.assert_close(
            familiarity[place], others.of_features(x[place : place + 1])[0], rtol=0, atol=tolerance
        )


def test_with_few_samples_an_image_tells_hardly_anything_about_itself() -> None:
    # Labels are random: what is learnt of an image says its label, what is learnt of others does not.
    x, _ = drawn(240, seed=1)
    rows = torch.from_numpy(np.random.default_rng(2).permutation(np.arange(240) % CLASSES))
    familiarity, totals = solved(x, rows)
    scores, _ = left_out(familiarity, totals, x, rows)
    plain = familiarity.gaussian.head().scores(x)
    assert float((plain.argmax(1) == rows).double().mean()) > 0.3
    assert float((scores[:, :CLASSES].argmax(1) == rows).double().mean()) < 2.5 / CLASSES


def test_classes_that_fit_into_a_chunk_calibrate_probabilities(tiny: ViT) -> None:
    # One class after the other, each in one chunk: none of its images can be predicted before it is learnt.
    learner = make(tiny, adapt_steps=0)
    for row in range(40):
        learner.learn(pictures([row % 6] * 10, seed=row), [row] * 10)
    assert learner.calibration.count > 10
    assert learner.calibration.usual_spread() is not None


def test_an_image_that_is_alone_in_its_class_is_not_observed(tiny: ViT) -> None:
    learner = make(tiny, adapt_steps=0)
    for row in range(24):
        learner.learn(pictures([row % 6] * 10, seed=row), list(range(10 * row, 10 * row + 10)))
    assert learner.calibration.count == 0
