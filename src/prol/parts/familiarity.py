"""How much like the known classes a feature is: the Mahalanobis distance to the nearest, relative to that to all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from prol.parts.moments import Totals
from prol.parts.solvers import NEGLIGIBLE, factor, mean_square, within_classes

SHARE = 0.3
"""How far covariances are shrunk towards their mean variance: what was best or nearly so with few samples and many."""
WIDEST = 1000
"""Features that are looked at, at most: of random ones more tell no more."""


@dataclass(frozen=True)
class RelativeDistance:
    """d₀(x) - min_c d_c(x), with d_c the squared Mahalanobis distance to the mean of class c and d₀ to that of all.

    d_c takes the covariance within classes, d₀ that of all samples (Ren et al. 2021). What is unlike everything, as a
    bad photograph, is far from both, and only what is nearer to a class than to the crowd is familiar. `centre` is
    `[M]`; `within` and `overall` `[M, M]` are lower Cholesky factors, and `means` `[R, M]` those of the classes seen,
    from the centre, where the covariance within classes is the identity.
    """

    centre: Tensor
    within: Tensor
    overall: Tensor
    means: Tensor

    @classmethod
    def of(cls, totals: Totals) -> RelativeDistance:
        """From moments of at least one sample."""
        count = totals.counts.sum()
        means, covariance = within_classes(totals)
        centre = totals.sums.sum(0) / count
        largest = mean_square(totals) / float(count)
        everything = torch.addr(totals.gram / count, centre, centre, alpha=-1)
        if _spread(everything) > NEGLIGIBLE * largest:
            overall = factor(_shrunk(everything), largest)
        else:  # one image, or copies of it: any metric will do
            overall = largest**0.5 * torch.eye(len(centre), device=centre.device, dtype=centre.dtype)
        if _spread(covariance) > NEGLIGIBLE * largest:
            within = factor(_shrunk(covariance), largest)
        else:  # one sample a class: half of all variance is taken for theirs
            within = 0.5**0.5 * overall
        apart = (means - centre)[totals.counts > 0]
        return cls(centre, within, overall, torch.linalg.solve_triangular(within, apart.T, upper=False).T)

    def familiarity(self, features: Tensor) -> Tensor:
        """`[B]` from features `[B, M]`, or more of which the first are taken."""
        apart = (features[:, : len(self.centre)].to(self.centre) - self.centre).T
        z = torch.linalg.solve_triangular(self.within, apart, upper=False).T
        nearest = (self.means.square().sum(1) - 2 * z @ self.means.T).amin(1) + z.square().sum(1)
        crowd = torch.linalg.solve_triangular(self.overall, apart, upper=False).square().sum(0)
        relative: Tensor = crowd - nearest
        return relative


class LatestDistance:
    """Solves a relative distance when it is asked for, and anew when samples have come or gone since."""

    def __init__(self) -> None:
        self._solved: tuple[Tensor, RelativeDistance] | None = None

    def __call__(self, counts: Tensor, totals: Callable[[], Totals]) -> RelativeDistance | None:
        """From `totals` at samples of classes `counts` `[C]`; None while there are none."""
        if not bool(counts.any()):
            return None
        if self._solved is None or not torch.equal(self._solved[0], counts):
            self._solved = counts.clone(), RelativeDistance.of(totals())
        return self._solved[1]

    def forget(self) -> None:
        self._solved = None


def _spread(covariance: Tensor) -> float:
    return float(covariance.diagonal().mean())


def _shrunk(covariance: Tensor) -> Tensor:
    """(1 - share) of the covariance, and share of its mean variance in each direction."""
    shrunk = (1 - SHARE) * covariance
    shrunk.diagonal().add_(SHARE * _spread(covariance))
    return shrunk
