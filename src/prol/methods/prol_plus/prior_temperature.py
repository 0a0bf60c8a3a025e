"""The temperature of PROL+'s scores before predictions were compared with labels.

First a formula in the numbers of classes and images. It knows nothing of how far apart the classes are, and a set of
drawings is easier than one of birds. So images are drawn from the classifier's own Gaussian and left out of it
(`leave_one_out`), and the temperature with the least Brier score is found for them, with every tenth label taken at
random: real images lie further out than those of a Gaussian. If it is q times that of the formula, 1.1 √q times that
is expected: what many samples say of drawn images is too good, since classes are no Gaussians.

How far the scores of drawn images spread among the classes is what is usual for images of all classes: real ones spread
as far, and those that arrive may all be of a few classes. Their familiarity says what is usual at the present state.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from prol.calibration import FACTORS, least, relative_spread, spread_of
from prol.methods.closed_form.moments import ClassTotals
from prol.methods.prol_plus.gaussian import Gaussian
from prol.methods.prol_plus.leave_one_out import drawn_left_out

OUTLIERS = 0.1
"""Share of drawn images whose label is taken at random."""
TRUST, OFFSET = 0.5, 1.1
"""Share of the logarithm of the factor for drawn images that holds for real ones, and what these have besides."""
LEAST_DEVIATION = 1e-6
"""Least standard deviation of the familiarity of drawn images: below it, they are all the same."""
LEAST_FREEDOM = 80
"""Degrees of freedom from which images are drawn: fewer say too little about how images spread."""


class Usual(NamedTuple):
    """The factor by which drawn images correct the formula, and where it is known the usual spread of scores.

    Then also the mean and the standard deviation of the familiarity of drawn images.
    """

    factor: float = 1.0
    spread: float | None = None
    familiarity: tuple[float, float] | None = None

    def standard(self, familiarity: Tensor | None) -> Tensor | None:
        """Familiarity `[B]` in deviations from that of drawn images; None where that is not known."""
        if familiarity is None or self.familiarity is None:
            return None
        mean, deviation = self.familiarity
        return (familiarity - mean) / deviation


def prior_temperatures(counts: Tensor) -> Tensor:
    """The formula: what scores for images of each class `[C]` are divided by.

    (0.6 + 2 n^(-0.35) (1 + 1.6 / C)) N / (N + 28) for a class of n of N samples of C classes, 0 without a sample.
    Fitted to streams of 3 to 100 classes with 1 to 40 images each, and to what is known of larger ones.
    """
    samples, classes = counts.double().clamp(min=1), counts.count_nonzero().clamp(min=1)
    total = counts.double().sum()
    found = (0.6 + 2 * samples.pow(-0.35) * (1 + 1.6 / classes)) * total / (total + 28)
    return found * (counts > 0)


def usual(gaussian: Gaussian, sums: ClassTotals) -> Usual:
    """What images drawn from the Gaussian say; nothing while there are too few samples."""
    counts = sums.counts[gaussian.seen]
    if float(counts.sum()) - len(counts) < LEAST_FREEDOM or len(counts) < 2:
        return Usual()
    drawn = drawn_left_out(gaussian, sums)
    scores, formula = drawn.scores.double().cpu(), float(prior_temperatures(counts).mean())
    factor = OFFSET * best_factor(scores / formula, drawn.rows.cpu()) ** TRUST
    familiarity = float(drawn.familiarity.mean()), max(float(drawn.familiarity.std()), LEAST_DEVIATION)
    return Usual(factor, float(spread_of(scores).mean()), familiarity)


def best_factor(scores: Tensor, rows: Tensor) -> float:
    """The temperature with the least expected Brier score, for scores `[B, C]` of the classes `[B]`."""
    spread, classes = spread_of(scores), scores.shape[1]
    scaled = scores / relative_spread(scores, float(spread.mean())).unsqueeze(1)
    random = torch.randint(1, classes, rows.shape, generator=torch.Generator().manual_seed(0))
    labels = torch.stack([rows, (rows + random) % classes], dim=1)
    shares = torch.tensor([1 - OUTLIERS, OUTLIERS], dtype=torch.float64)

    def loss(factor: float) -> float:
        likely = (scaled / factor).softmax(1)
        return float((likely.square().sum(1) - 2 * likely.gather(1, labels) @ shares).sum())

    return least([loss(factor) for factor in FACTORS])
