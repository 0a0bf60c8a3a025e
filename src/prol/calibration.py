"""Calibrated probabilities: a temperature from predictions made before learning, of which only sums are stored.

A chunk that is about to be learnt is a fair test. From time to time the learner predicts it first, and adds up the
Brier score at each of a grid of temperatures. Images of classes that are not known yet take no part. The temperature
is that with the least score, drawn towards a prior one while there are few such predictions. Sums of earlier
predictions count by the share of today's images that had been learnt then, because the learner has changed since. An
image whose scores spread more among classes than usual has a higher temperature.

The same images say how familiar images of known classes are. That changes while the learner learns: each observation is
compared with what was expected after those before it, and expectations are corrected by how far they have been off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from prol.state import State

FACTORS = tuple(2 ** (third / 3) for third in range(-15, 16))
"""Temperatures to choose from, in units of the prior one."""
GROWTH = 1.35
"""A chunk is predicted before it is learnt when the images have become so many times as many, or by `SPACING`."""
SPACING = 0.5
"""If m of n images were observed last, the next chunk is predicted after `SPACING` m √n more, if that is earlier."""
PRIOR_DEVIATION = 0.2
"""Standard deviation of the logarithm of the best factor, where the method has a prior temperature of its own."""
WIDE_DEVIATION = 1.0
"""The same for other methods: their prior temperature is the spread of their scores."""
BRIER_WEIGHT = 2.0
"""Weight of a Brier score beside the prior of the temperature, for which a log loss would count 1."""
ALIKE = 0.15
"""Correlation of the losses of two images of one class in a chunk: n of them count as n / (1 + 0.15 (n - 1))."""
SPREAD_CLASSES = 30
"""Classes at which an image's temperature follows the root of the spread of its scores, with far more the spread."""
SETTLED = 2
"""Images per class from which on familiarity is observed: before, it changes faster than it can be followed."""
ENOUGH = 10.0
"""Weight of the images of known classes that must be observed before any image is called unknown."""
FURTHEST = 3.0
"""Deviations by which an observation may differ from what was expected; what differs more counts as this."""
STANDARD = (20.0, 0.6, 1.4)
"""What is expected before standard familiarity was observed: weight, mean and standard deviation."""
SKEWNESS = 0.75
"""Of standard familiarity: it is that to the nearest of many classes, a maximum."""
FAMILIAR = ("weight", "familiarity", "familiarity_squares", "residuals", "residual_squares")
"""Sums over images whose familiarity was observed, each with the weight of its time; `weight` is the sum of these."""


class Prior(NamedTuple):
    """A method's own temperature before predictions were compared with labels.

    Losses are summed in units of `unit`; the temperature is expected at `factor` times that, for an image whose scores
    have the usual `spread`. Where that is None, it is the mean of the images observed.
    """

    unit: float
    factor: float = 1.0
    spread: float | None = None


@dataclass(frozen=True)
class Observation:
    """Sums over `count` images of known classes, predicted before they were learnt.

    The `losses` at each factor, which are Brier scores, the `spread` of the images' scores, and their `familiarity`:
    its values and squares. There were so many `classes`. Familiarity is `standard` where the method itself knows what
    to expect, and returns it in deviations from that, from the first such observation on.
    """

    losses: tuple[float, ...]
    count: int
    spread: float
    familiarity: tuple[float, float] | None
    classes: int
    standard: bool = False


class Calibration:
    """Sums from which a learner's temperature follows, and what familiarity is usual.

    They are values of the state: saved, restored, and added up when learners are merged.
    """

    def __init__(self, state: State) -> None:
        self.losses = [0.0] * len(FACTORS)
        self.count, self.spread, self.images, self.next = 0.0, 0.0, 0, 1
        self.weight, self.familiarity, self.familiarity_squares = 0.0, 0.0, 0.0
        self.residuals, self.residual_squares, self.observed_at, self.familiar_at = 0.0, 0.0, 0, 0
        self.standard = 0
        for place, factor in enumerate(FACTORS):
            read, load = partial(self.losses.__getitem__, place), partial(self.losses.__setitem__, place)
            state.value(f"losses/{factor:.3g}", read=read, load=load, merge="sum", later=True)
        for name in ("count", "spread", "images", *FAMILIAR):
            state.value(name, self, merge="sum", later=True)
        for name in ("next", "observed_at", "familiar_at", "standard"):
            state.value(name, self, later=True)

    @property
    def due(self) -> bool:
        """Whether the next chunk is to be predicted before it is learnt."""
        return self.images >= self.next

    def learnt(self, images: int, observed: Observation | None, due: bool = True) -> None:
        """So many images were learnt, on which this was observed; `due` if by a classifier solved for it."""
        before, self.images = self.images, self.images + images
        if observed is None:
            return
        if due:
            rest = min((GROWTH - 1) * self.images, SPACING * observed.count * math.sqrt(self.images))
            self.next = self.images + max(1, math.ceil(rest))
        decay, self.observed_at = self.observed_at / self.images, self.images
        for place, loss in enumerate(observed.losses):
            self.losses[place] = decay * self.losses[place] + loss
        self.count = decay * self.count + observed.count
        self.spread = decay * self.spread + observed.spread
        if observed.standard and not self.standard:
            self._standardise()
        if observed.familiarity is not None and before >= SETTLED * observed.classes:
            self._compare(observed.count, *observed.familiarity)

    def _standardise(self) -> None:
        """Familiarity has another scale from now on: its sums become what is expected."""
        weight, mean, deviation = STANDARD
        self.standard, self.familiar_at = 1, self.images
        found = (weight, weight * mean, weight * (mean**2 + deviation**2), 0.0, weight)
        for name, value in zip(FAMILIAR, found, strict=True):
            setattr(self, name, value)

    def _compare(self, count: int, values: float, squares: float) -> None:
        """Adds the familiarity of `count` images, and its residuals from what was expected, in deviations."""
        if not math.isfinite(squares):
            return
        decay, self.familiar_at = self.familiar_at / self.images, self.images
        residuals, residual_squares = 0.0, float(count)
        if self.weight >= ENOUGH:
            mean, deviation = _moments(self.weight, self.familiarity, self.familiarity_squares)
            off = math.sqrt(max(squares / count - 2 * mean * values / count + mean**2, 0.0)) / deviation
            bounded = FURTHEST / max(off, FURTHEST)
            residuals = bounded * (values - count * mean) / deviation
            residual_squares = count * (bounded * off) ** 2
            values = count * mean + residuals * deviation
            squares = count * mean**2 + 2 * mean * residuals * deviation + residual_squares * deviation**2
        for name, added in zip(FAMILIAR, (count, values, squares, residuals, residual_squares), strict=True):
            setattr(self, name, decay * getattr(self, name) + added)

    def usual_familiarity(self) -> tuple[float, float] | None:
        """Mean and standard deviation of that of images of known classes; None until enough were observed."""
        if self.weight < ENOUGH:
            return None
        mean, deviation = _moments(self.weight, self.familiarity, self.familiarity_squares)
        usual, spread = _moments(self.weight, self.residuals, self.residual_squares)
        return mean + usual * deviation, spread * deviation

    def unknown(self, familiarity: Tensor) -> Tensor | None:
        """The share of images of known classes that are more familiar, `[N]`; None until enough were observed.

        It takes their residuals to be normally distributed, and those of standard familiarity to be skewed. What is no
        number is like nothing known.
        """
        usual = self.usual_familiarity()
        if usual is None:
            return None
        mean, deviation = usual
        # The normal distribution in float32, the only type for which onnxruntime has it.
        residuals = (familiarity.double() - mean) / deviation
        share: Tensor = torch.special.ndtr(-(normal(residuals) if self.standard else residuals).float())
        return share.nan_to_num(1.0)

    def notes(self) -> list[str]:
        """What removing a class, or unlearning images, leaves here."""
        return ["the calibration of probabilities was fitted on all that was seen"] if self.count else []

    def temperature(self, prior: Prior | None, scores: Tensor) -> Tensor:
        """What scores `[N, C]` are divided by, `[N, 1]`, in units of the method's `prior` or of their spread."""
        usual, found = self.usual_spread(prior), self.usual_temperature(prior)
        if found is None:
            return spread_of(scores).unsqueeze(1) * self._factor(WIDE_DEVIATION)
        unit = scores.new_full((scores.shape[0], 1), found, dtype=torch.float64)  # len() is fixed in a graph
        return unit if usual is None else unit * relative_spread(scores, usual).unsqueeze(1)

    def usual_temperature(self, prior: Prior | None) -> float | None:
        """That of an image of the usual spread; None where each image's own spread is the unit."""
        if prior is not None:
            return prior.unit * self._factor(PRIOR_DEVIATION, prior.factor)
        usual = self.usual_spread()
        return None if usual is None else usual * self._factor(WIDE_DEVIATION)

    def usual_spread(self, prior: Prior | None = None) -> float | None:
        """The spread of scores among the classes that is usual: the method's own, or the mean of images observed.

        None before any was.
        """
        if prior is not None and prior.spread is not None:
            return prior.spread
        return self.spread / self.count if self.count and self.spread else None

    def _factor(self, deviation: float, expected: float = 1.0) -> float:
        """The factor with the least loss and distance from what is expected."""
        logs = [math.log(factor / expected) for factor in FACTORS]
        return least([loss + (log / deviation) ** 2 / 2 for loss, log in zip(self.losses, logs, strict=True)])


def normal(residuals: Tensor) -> Tensor:
    """The normal variable of which residuals with `SKEWNESS` are a function: they follow a gamma distribution.

    That is the approximation of Wilson and Hilferty.
    """
    cubed = 1 + SKEWNESS / 2 * residuals
    return 6 / SKEWNESS * (cubed.clamp(min=1e-9).pow(1 / 3) - 1) + SKEWNESS / 6


def least(losses: Sequence[float]) -> float:
    """The factor with the least loss, between those of `FACTORS` by a parabola."""
    best = min(range(len(losses)), key=losses.__getitem__)
    if not 0 < best < len(losses) - 1:
        return FACTORS[best]
    left, middle, right = losses[best - 1 : best + 2]
    bend = left - 2 * middle + right
    step = (left - right) / (2 * bend) if bend > 0 else 0.0
    return float(FACTORS[best] * (FACTORS[1] / FACTORS[0]) ** step)


def observe(
    scores: Tensor,
    rows: Tensor,
    known: Tensor,
    prior: Tensor | None,
    familiarity: Tensor | None,
    usual_spread: float | None = None,
) -> Observation | None:
    """What predictions before learning show: scores `[N, C]` for images of class rows `[N]`, where `known` `[N]`.

    The unit of an image's temperature is that of its class in `prior` `[C]`, or the mean spread of scores: a class that
    has few samples yet says nothing about how certain others are. It is higher for an image whose scores spread more
    than usual, or than those of the others where that is not known. Images of one class count less each, since a class
    may be easier than others.
    None where they show nothing: no image of a class that could be predicted, or fewer than two such classes.
    """
    scores = scores.double()
    seen = scores.isfinite().all(0)
    if int(seen.sum()) < 2:
        return None
    fair = known & seen[rows.clamp(min=0)]
    places = seen.cumsum(0) - 1  # of classes that were learnt among each other
    some, right = scores[fair][:, seen], places[rows[fair]]
    if not len(some):
        return None
    spread = spread_of(some)
    unit = spread.mean().expand(len(some)) if prior is None else prior.to(some)[rows[fair]]
    scaled = some / (unit * relative_spread(some, usual_spread or float(spread.mean()))).unsqueeze(1)
    weights = BRIER_WEIGHT / (1 + ALIKE * (right.bincount()[right].double() - 1))
    losses = torch.stack([weights @ brier_score(scaled / factor, right) for factor in FACTORS]).tolist()
    sums = None
    if familiarity is not None:
        usual = familiarity[fair].double()
        sums = float(usual.sum()), float(usual.square().sum())
    return Observation(tuple(losses), len(some), float(spread.sum()), sums, int(seen.sum()))


def brier_score(logits: Tensor, rows: Tensor) -> Tensor:
    """Σ_c (p_c - [c = y])² of images of the class rows y `[N]`, p being the softmax of logits `[N, C]`; `[N]`.

    It is a proper score like the log loss, but hardly counts how small the probability of a label is that was missed:
    mean confidence is closer to accuracy.
    """
    likely = logits.softmax(1)
    found: Tensor = likely.square().sum(1) - 2 * likely.gather(1, rows.unsqueeze(1)).squeeze(1) + 1
    return found


def relative_spread(scores: Tensor, usual: float) -> Tensor:
    """How much higher the temperature of an image of scores `[N, C]` is than usual, `[N]`.

    It is (s / `usual`)^(C / (C + 30)) for scores of the standard deviation s among C classes: with few of them, the
    deviation is mostly that of the predicted class from the others, which says how certain the prediction is.
    """
    classes = scores.isfinite().sum(1)
    return (spread_of(scores) / usual) ** (classes / (classes + SPREAD_CLASSES))


def probabilities(scores: Tensor, temperature: Tensor | float) -> Tensor:
    """The softmax of scores `[N, C]` over the temperature, float64; 0 for a class of which nothing was learnt."""
    return (scores.double() / temperature).softmax(dim=1).nan_to_num(0.0)


def _moments(weight: float, values: float, squares: float) -> tuple[float, float]:
    """Mean and standard deviation, from sums."""
    mean = values / weight
    return mean, math.sqrt(max(squares / weight - mean**2, 1e-12))


def spread_of(scores: Tensor) -> Tensor:
    """The standard deviation of each image's finite scores, `[N]`; 1 where they do not differ."""
    finite = scores.isfinite()
    values, counts = scores.double().where(finite, 0.0), finite.sum(1).clamp(min=1)
    mean = values.sum(1) / counts
    found = (((values - mean.unsqueeze(1)).square() * finite).sum(1) / counts).sqrt()
    return found.where(found > 0, 1.0)
