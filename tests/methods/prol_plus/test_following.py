"""Predictions soon after a chunk: an earlier covariance with the present class means."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from methods.prol_plus.small_prol_plus import learn, make
from methods.small_streams import pictures
from prol.backbones import ViT
from prol.methods.closed_form.moments import ClassTotals, Totals
from prol.methods.prol_plus.gaussian import Gaussian
from prol.methods.prol_plus.learner import MOST_AHEAD, PROLPlus

WIDTH = 10


def moments(rows: list[int], classes: int) -> Totals:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(len(rows), WIDTH))) + torch.tensor(rows).unsqueeze(1)
    return Totals.of(x, torch.tensor(rows), classes)


def scores(gaussian: Gaussian, probes: Tensor) -> Tensor:
    return gaussian.head().scores(probes)


@pytest.mark.parametrize("after", [[0, 1, 2, 3] * 6, [0, 1, 2, 3] * 5 + [4, 4, 6], [0, 0, 2, 3] * 5])
def test_class_means_are_those_of_the_new_sums(after: list[int]) -> None:
    """Also of new classes, of one that is only announced, and of one of which nothing is left."""
    before, now = moments([0, 1, 2, 3] * 5, 4), moments(after, max(4, max(after) + 2))
    gaussian = Gaussian.of(before, torch.zeros(WIDTH), 300.0)
    found = gaussian.with_means(ClassTotals(before.sums, before.counts), ClassTotals(now.sums, now.counts))
    means, seen = now.sums / now.counts.clamp(min=1).unsqueeze(1), now.counts > 0
    apart = (means - means[seen].mean(0)).float() * seen.unsqueeze(1)
    solved = gaussian.metric.solve(apart)
    torch.testing.assert_close(found.centre, means[seen].mean(0).float())
    torch.testing.assert_close(found.solved, solved, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(found.lengths[seen], (solved * apart).sum(1)[seen], rtol=1e-3, atol=1e-4)
    assert found.samples == gaussian.samples == 20


def later(earlier: PROLPlus) -> PROLPlus:
    """The same learner six images and two classes later."""
    twin = earlier.clone()
    twin.learn(pictures([6, 7] * 3, seed=90), [6, 7] * 3)
    return twin


def test_predictions_are_soon_nearly_those_of_the_state(tiny: ViT) -> None:
    earlier = learn(make(tiny, adapt_steps=0), 40)
    earlier.predict(pictures([0]))
    exact, soon = later(earlier), later(earlier)
    asked = pictures(list(range(8)) * 3, seed=91)
    assert soon.follow(earlier)
    found, expected = soon.classify(asked), exact.classify(asked)
    assert np.mean([a == b for a, b in zip(found.labels, expected.labels, strict=True)]) > 0.9
    assert float((found.probabilities - expected.probabilities).abs().max()) < 0.15
    assert not torch.equal(soon.predict(asked), exact.predict(asked))
    for learner in (soon, exact):
        learner.learn(pictures([0, 7]), [0, 7])
    assert torch.equal(soon.predict(asked), exact.predict(asked))  # nothing is left of it


def test_where_the_covariance_would_be_another_one_it_is_solved_anew(tiny: ViT) -> None:
    earlier = learn(make(tiny, adapt_steps=0), 6)
    renamed, further, empty = later(earlier), later(earlier), make(tiny, adapt_steps=0)
    renamed.rename_class(0, "other")
    while further.seen <= MOST_AHEAD * earlier.seen:
        assert further.follow(earlier)
        further.learn(pictures([0, 1, 2]), [0, 1, 2])
    for learner, other in ((renamed, earlier), (further, earlier), (earlier, empty), (earlier, later(earlier))):
        assert not learner.follow(other)
