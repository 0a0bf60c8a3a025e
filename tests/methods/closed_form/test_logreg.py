"""Logistic regression: the solution has no gradient, and the penalty is the best on images held out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import prol
from methods.small_streams import pictures
from prol.backbones import ViT, evaluation_input
from prol.methods.closed_form import logreg
from prol.methods.closed_form.logreg import FIRST, PENALTIES, LogReg, choose_penalty, fitted, minimised, place_in_class

KINDS = [0, 1, 2, 0, 1, 0, 2, 3, 1, 0, 3, 2]
IMAGES = pictures(KINDS)
TEST = pictures([0, 1, 2, 3], seed=7)


def samples(count: int, width: int, noise: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(seed)
    rows = torch.arange(count) % 3
    centres = torch.randn(3, width, generator=random).double()
    x = centres[rows] + noise * torch.randn(count, width, generator=random).double()
    return 5 + x * torch.linspace(0.1, 10, width).double(), rows


def gradient(features: Tensor, rows: Tensor, weight: Tensor, penalty: float) -> Tensor:
    """Of the loss by weights and biases `[C, D + 1]` of standardised features, written out."""
    mean, deviation = features.mean(0), features.std(0, correction=0)
    x = (features - mean) / deviation
    linear = weight[:, :-1] * deviation
    bias = weight[:, -1] + weight[:, :-1] @ mean
    error = ((x @ linear.T + bias).softmax(1) - F.one_hot(rows)) / len(x)
    return torch.cat([error.T @ x + penalty * linear, error.sum(0).unsqueeze(1)], dim=1)


@pytest.mark.parametrize(("count", "width"), [(60, 5), (12, 40)])
@pytest.mark.parametrize("penalty", [1e-3, 0.1, 10.0])
def test_the_solution_has_no_gradient_with_more_samples_than_features_and_with_fewer(
    count: int, width: int, penalty: float
) -> None:
    x, rows = samples(count, width)
    weight = fitted(x, rows, penalty)
    assert gradient(x, rows, weight, penalty).abs().max() < 2e-6
    assert gradient(x, rows, 1.1 * weight, penalty).abs().max() > 1e-4


def test_the_penalty_is_the_best_on_the_second_and_every_fifth_image_of_a_class() -> None:
    chosen = []
    for noise in (0.3, 3.0):
        x, rows = samples(90, 8, noise)
        x = (x - x.mean(0)) / x.std(0)
        held = torch.tensor([number // 3 % 5 == 1 for number in range(90)])
        losses = []
        for penalty in PENALTIES:
            weight = minimised(x[~held], rows[~held], penalty)
            losses.append(float(F.cross_entropy(x[held] @ weight[:, :-1].T + weight[:, -1], rows[held])))
        chosen.append(choose_penalty(x, rows))
        assert chosen[-1] == PENALTIES[losses.index(min(losses))]
    assert chosen[0] < chosen[1]


def test_with_one_image_per_class_there_is_nothing_to_choose_by() -> None:
    x, rows = samples(3, 8)
    assert choose_penalty(x, rows) == PENALTIES[FIRST] == 0.1
    assert place_in_class(torch.tensor([2, 0, 2, 2, 0, 1])).tolist() == [0, 0, 1, 2, 1, 0]


def test_a_feature_that_never_varies_has_no_weight() -> None:
    x, rows = samples(30, 4)
    x[:, 1] = 7.0
    weight = fitted(x, rows, 0.1)
    assert weight.isfinite().all()
    assert (weight[:, 1] == 0).all()


@pytest.mark.parametrize("options", [{}, {"features": "prol_plus", "blocks": 2}])
def test_it_learns_from_the_stored_features(tiny: ViT, options: dict[str, object]) -> None:
    learner = prol.create("logreg", tiny, **options)
    assert isinstance(learner, LogReg)
    learner.boundary([0, "ghost", 1, 2, 3])
    assert (learner.predict(TEST) == -torch.inf).all()
    for start in range(0, 12, 5):
        learner.learn(IMAGES[start : start + 5], KINDS[start : start + 5])
    scores = learner.predict(TEST)
    assert scores.argmax(1).tolist() == [0, 2, 3, 4]
    assert (scores[:, 1] == -torch.inf).all()
    inputs = evaluation_input(tiny.read(IMAGES), tiny.preprocessing, torch.device("cpu"), torch.float64)
    if options:
        taps = tiny.encode(tiny.embed(inputs), taps=range(tiny.depth - 2, tiny.depth))
        found = learner.stored_features.features.rows.view(12, 2, tiny.width, 2)
        torch.testing.assert_close(found[:, 1, :, 0], taps.class_taps[1])
        torch.testing.assert_close(found[:, 0, :, 1], taps.patch_taps[0])
    else:
        torch.testing.assert_close(learner.stored_features.features.rows, tiny.features(inputs))


def test_it_is_fitted_once_until_something_is_learnt(tiny: ViT, monkeypatch: pytest.MonkeyPatch) -> None:
    fits, fit = [], logreg.fitted
    monkeypatch.setattr(logreg, "fitted", lambda *given: (fits.append(len(given[0])), fit(*given))[1])
    learner = prol.create("logreg", tiny)
    learner.calibration.next = 10**9  # no chunk is predicted before it is learnt
    learner.learn(IMAGES[:4], KINDS[:4])
    learner.learn(IMAGES[4:8], KINDS[4:8])
    assert fits == []
    assert torch.equal(learner.predict(TEST), learner.predict(TEST))
    assert fits == [8]
    learner.learn(IMAGES[8:], KINDS[8:])
    learner.predict(TEST)
    assert fits == [8, 12]
