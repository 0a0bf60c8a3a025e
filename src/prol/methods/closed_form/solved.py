"""Learners whose classifier is solved from second moments, and the familiarity that follows from the same moments.

Familiarity of a feature is the Mahalanobis distance to the nearest class, relative to that to all samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prol.learner import Learner
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.solvers import NEGLIGIBLE, factor, mean_square, within_classes

SHARE = 0.3
"""How far covariances are shrunk towards their mean variance: best or nearly so with few samples and with many."""
LEAST_FREEDOM = 0.05
"""Least share of the degrees of freedom that remain after the parameters."""
WIDEST = 1000
"""Maximum number of features used: more random ones add no information."""


class SolvedLearner(Learner):
    """Adds up moments; what predictions need is solved from them, once until they change.

    A method implements `solve` and `familiar`, and `embed` where it does not classify the features themselves.
    """

    def solve(self) -> Any:
        """A classifier, whose `scores` turns what `embed` returns `[B, M]` into scores `[B, C]`."""
        raise NotImplementedError

    def familiar(self) -> Totals | None:
        """Moments by which familiarity is measured, of the first features that `embed` returns; None without any."""
        raise NotImplementedError

    def embed(self, encoded: Tensor) -> Tensor:
        """What is classified, `[B, M]`, from encoded images `[B, D]`."""
        return encoded

    def score(self, encoded: Tensor) -> Tensor:
        scores: Tensor = self.latest(self.solve).scores(self.embed(encoded))
        return scores

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:
        distance = self.latest(self._distance)
        return None if distance is None else distance.familiarity(self.embed(encoded))

    def _distance(self) -> RelativeDistance | None:
        totals = self.familiar()
        return None if totals is None or not bool(totals.counts.any()) else RelativeDistance.of(totals)


@dataclass(frozen=True)
class RelativeDistance:
    """((d₀ - e₀) - min_c (d_c - e (1 + 1/n_c))) / e, with d_c the squared Mahalanobis distance to the mean of class c.

    d₀ is that to the mean of all; d_c takes the covariance within classes, d₀ that of all samples (Ren et al. 2021):
    what is nearer to a class than to the mean of all is familiar. e and e₀ are the expectations for a fresh sample of a
    known class, and the noise of the mean of n_c samples adds e/n_c: otherwise values would move with every chunk.

    `centre` is `[M]`; `within` and `overall` `[M, M]` are lower Cholesky factors; `means` `[R, M]` are those of the
    classes seen, from the centre, where the covariance within classes is the identity; `noise` `[R]` is 1 / n_c.
    """

    centre: Tensor
    within: Tensor
    overall: Tensor
    expected_within: float
    expected_overall: float
    means: Tensor
    noise: Tensor

    @classmethod
    def of(cls, totals: Totals) -> RelativeDistance:
        """From moments of at least one sample."""
        seen, count = totals.counts > 0, float(totals.counts.sum())
        freedom = max(1.0, count - float(seen.sum()))  # one mean per class was taken from the same samples
        centre, largest = totals.sums.sum(0) / count, mean_square(totals) / count
        everything = torch.addr(totals.gram / count, centre, centre, alpha=-1)
        if _spread(everything) <= NEGLIGIBLE * largest:  # one image, or copies of it: any metric will do
            everything = largest * torch.eye(len(centre), device=centre.device, dtype=centre.dtype)
        means, covariance = within_classes(totals)
        covariance *= count / freedom
        if (
            _spread(covariance) <= NEGLIGIBLE * largest
        ):  # one sample per class: half of all variance is taken for theirs
            covariance = everything / 2
        overall, expected_overall = _metric(everything, count, largest)
        within, expected_within = _metric(covariance, freedom, largest)
        whitened = torch.linalg.solve_triangular(within, (means - centre)[seen].T, upper=False).T
        return cls(centre, within, overall, expected_within, expected_overall, whitened, 1 / totals.counts[seen])

    def familiarity(self, features: Tensor) -> Tensor:
        """`[B]` from features `[B, M]`, or more of which the first are taken."""
        apart = (features[:, : len(self.centre)].to(self.centre) - self.centre).T
        z = torch.linalg.solve_triangular(self.within, apart, upper=False).T
        squares = z.square().sum(1, keepdim=True) - 2 * z @ self.means.T + self.means.square().sum(1)
        nearest = (squares - self.expected_within * (1 + self.noise)).amin(1)
        crowd = torch.linalg.solve_triangular(self.overall, apart, upper=False).square().sum(0)
        relative: Tensor = (crowd - self.expected_overall - nearest) / self.expected_within
        return relative


def _metric(covariance: Tensor, freedom: float, largest: float) -> tuple[Tensor, float]:
    """The lower Cholesky factor of a covariance `[M, M]`, shrunk, and the squared length that a fresh sample has by it.

    For the samples themselves that is t = tr(Σ⁻¹S), S being the covariance and Σ the shrunk one; a fresh sample, to
    which Σ was not fitted, is by 1 / (1 - (1 - share) t / freedom) longer.
    """
    shrunk = (1 - SHARE) * covariance
    shrunk.diagonal().add_(SHARE * _spread(covariance))
    lower = factor(shrunk, largest)
    own = float(torch.cholesky_solve(covariance, lower).diagonal().sum())
    return lower, own / max(LEAST_FREEDOM, 1 - (1 - SHARE) * own / freedom)


def _spread(covariance: Tensor) -> float:
    return float(covariance.diagonal().mean())
