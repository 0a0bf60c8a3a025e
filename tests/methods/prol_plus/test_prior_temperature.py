"""The prior temperature of PROL+: its formula, and how images drawn from the classifier correct it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import prol
from methods.small_streams import pictures
from prol.backbones import ViT
from prol.calibration import brier_score, relative_spread, spread_of
from prol.methods.closed_form.moments import ClassTotals, Totals
from prol.methods.prol_plus.gaussian import Familiarity, Gaussian, Overall
from prol.methods.prol_plus.leave_one_out import drawn_left_out, left_out
from prol.methods.prol_plus.prior_temperature import (
    LEAST_FREEDOM,
    Usual,
    best_factor,
    prior_temperatures,
    usual,
)

WIDTH = 40


def stream(classes: int, each: int, apart: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features of Gaussian classes whose means have this standard deviation."""
    random = np.random.default_rng(seed)
    rows = np.arange(classes * each) % classes
    x = apart * random.normal(size=(classes, WIDTH))[rows] + random.normal(size=(len(rows), WIDTH))
    return torch.from_numpy(x), torch.from_numpy(rows)


def solved(x: Tensor, rows: Tensor) -> tuple[Gaussian, ClassTotals]:
    totals = Totals.of(x, rows, int(rows.max()) + 2)  # of one class nothing was learnt
    return Gaussian.of(totals, torch.zeros(WIDTH), 300.0), ClassTotals(totals.sums, totals.counts)


def familiarity_of(x: Tensor, rows: Tensor) -> Familiarity:
    moments = Totals.of(x, rows, int(rows.max()) + 2)
    gaussian, sums = solved(x, rows)
    return Familiarity.of(gaussian, Overall.of(gaussian, sums, lambda: moments, torch.zeros(WIDTH), 300.0))


def test_the_prior_temperature_is_that_of_the_formula() -> None:
    """(0.6 + 2 n^(-0.35) (1 + 1.6 / C)) N / (N + 28), by the samples of each class; 0 without any."""
    found = prior_temperatures(torch.tensor([16.0, 0.0, 2.0, 10.0]))
    expected = [(0.6 + 2 * n**-0.35 * (1 + 1.6 / 3)) * 28 / 56 if n else 0.0 for n in (16, 0, 2, 10)]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64))
    assert not prior_temperatures(torch.zeros(3)).any()


@pytest.mark.parametrize(("classes", "each"), [(12, 40), (60, 5), (300, 4)])
def test_drawn_images_score_as_images_of_gaussian_classes_that_are_left_out(classes: int, each: int) -> None:
    x, rows = stream(classes, each, apart=0.5)
    gaussian, sums = solved(x, rows)
    real, familiarity = left_out(familiarity_of(x, rows), sums, x, rows)
    drawn = drawn_left_out(gaussian, sums)
    assert float(drawn.familiarity.mean()) == pytest.approx(float(familiarity.mean()), abs=0.15)
    if classes > 256:  # the others take part in neither
        assert drawn.scores.shape[1] == 256
        return
    real = real[:, :classes]
    for measure in (hit_rate, own_score, spread):
        assert measure(drawn.scores, drawn.rows) == pytest.approx(measure(real, rows), rel=0.08, abs=0.03)
    assert float(drawn.familiarity.std()) == pytest.approx(float(familiarity.std()), rel=0.15)


def hit_rate(scores: Tensor, rows: Tensor) -> float:
    return float((scores.argmax(1) == rows).double().mean())


def own_score(scores: Tensor, rows: Tensor) -> float:
    return float(scores.gather(1, rows.unsqueeze(1)).mean())


def spread(scores: Tensor, rows: Tensor) -> float:  # noqa: ARG001
    return float(spread_of(scores).mean())


def test_the_further_apart_classes_are_the_lower_the_temperature() -> None:
    found = [usual(*solved(*stream(20, 10, apart))).factor for apart in (0.1, 0.4, 1.2)]
    assert found[0] > found[1] > found[2]


def test_too_few_samples_correct_nothing() -> None:
    each = LEAST_FREEDOM // 20
    assert usual(*solved(*stream(20, each, 1.2))) == Usual(1.0, None, None)
    assert usual(*solved(*stream(20, each + 2, 1.2))).factor != 1.0
    assert usual(*solved(*stream(1, 200, 1.2))) == Usual(1.0, None, None)


def test_the_usual_spread_is_that_of_images_that_are_left_out() -> None:
    x, rows = stream(12, 40, apart=0.5)
    real = left_out(familiarity_of(x, rows), solved(x, rows)[1], x, rows)[0][:, :12]
    assert usual(*solved(x, rows)).spread == pytest.approx(spread(real, rows), rel=0.08)


def test_the_best_factor_has_the_least_brier_score_with_a_tenth_of_the_labels_at_random() -> None:
    x, rows = stream(12, 100, apart=0.6)
    scores = left_out(familiarity_of(x, rows), solved(x, rows)[1], x, rows)[0][:, :12].double()
    found = best_factor(scores, rows)
    scaled = scores / relative_spread(scores, float(spread_of(scores).mean())).unsqueeze(1)
    others = (rows + 1 + torch.arange(len(rows)) % 11) % 12

    def loss(factor: float) -> float:
        right, wrong = (float(brier_score(scaled / factor, labels).sum()) for labels in (rows, others))
        return 0.9 * right + 0.1 * wrong

    assert loss(found) < min(loss(found / 1.5), loss(found * 1.5))


def test_familiarity_is_standard_once_drawn_images_say_what_is_usual(tiny: ViT) -> None:
    learner = prol.create("prol_plus", tiny, budget_mb=1, features=32, adapt_steps=0)
    for step in range(30):
        kinds = [(step + number) % 5 for number in range(12)]
        learner.learn(pictures(kinds, seed=step), kinds)
        if learner.seen < 200:
            assert not learner.calibration.standard
    assert learner.calibration.standard
    known, strange = (learner.classify(pictures([0, 1, 2, 3, 4] * 4, seed=99)), learner.classify(noise(20)))
    assert known.unknown is not None
    assert strange.unknown is not None
    assert float(known.unknown.mean()) < 0.7
    assert float(strange.unknown.min()) > 0.95
    for name in (1, 2, 3, 4):  # too few images are left to draw others
        learner.remove_class(name)
    assert learner.familiarity(noise(2)) is None
    assert learner.classify(noise(2)).unknown is None


def noise(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(0).integers(0, 255, (count, 16, 16, 3), dtype=np.uint8)
