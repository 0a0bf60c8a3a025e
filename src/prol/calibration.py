"""Calibrated probabilities: a temperature from predictions made before learning, of which only sums are stored.

A chunk that is about to be learnt is a fair test. From time to time the learner predicts it first, and adds up the log
loss at each of a grid of temperatures. Images of classes that are not known yet take no part. The temperature is that
with the least loss, drawn towards a prior one while there are few such predictions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.state import State

FACTORS = tuple(2 ** (third / 3) for third in range(-15, 16))
"""Temperatures to choose from, in units of the prior one."""
GROWTH = 1.35
"""A chunk is predicted before it is learnt whenever the images have become so many times as many."""
REMEMBERED = 0.7
"""Weight of earlier losses when new ones are added: the learner has changed since."""
FAMILIARITY_REMEMBERED = 0.95
"""The same for familiarity, whose deviation takes more images to know."""
PRIOR_DEVIATION = 0.25
"""Standard deviation of the logarithm of the best factor, where the method has a prior temperature of its own."""
WIDE_DEVIATION = 1.0
"""The same for other methods: their prior temperature is the spread of their scores."""
ENOUGH = 20.0
"""Images of known classes that must be observed before any is called unknown."""


@dataclass(frozen=True)
class Observation:
    """Sums over `count` images of known classes, predicted before they were learnt.

    The log `losses` at each factor, the `spread` of their scores, and their `familiarity`: its values and squares.
    """

    losses: tuple[float, ...]
    count: int
    spread: float
    familiarity: tuple[float, float] | None


class Calibration:
    """Sums from which a learner's temperature follows, and what familiarity is usual.

    They are values of the state: saved, restored, and added up when learners are merged.
    """

    def __init__(self, state: State) -> None:
        self.losses = [0.0] * len(FACTORS)
        self.count, self.spread, self.images, self.next = 0.0, 0.0, 0, 1
        self.familiarity, self.familiarity_squares, self.familiarity_count = 0.0, 0.0, 0.0
        for place, factor in enumerate(FACTORS):
            read, load = partial(self.losses.__getitem__, place), partial(self.losses.__setitem__, place)
            state.value(f"losses/{factor:.3g}", read=read, load=load, merge="sum", later=True)
        for name in ("count", "spread", "images", "familiarity", "familiarity_squares", "familiarity_count"):
            state.value(name, self, merge="sum", later=True)
        state.value("next", self, later=True)

    @property
    def due(self) -> bool:
        """Whether the next chunk is to be predicted before it is learnt."""
        return self.images >= self.next

    def learnt(self, images: int, observed: Observation | None) -> None:
        """So many images were learnt; before that, this was observed on them."""
        self.images += images
        if observed is None:
            return
        self.next = max(self.images + 1, math.ceil(GROWTH * self.images))
        for place, loss in enumerate(observed.losses):
            self.losses[place] = REMEMBERED * self.losses[place] + loss
        self.count = REMEMBERED * self.count + observed.count
        self.spread = REMEMBERED * self.spread + observed.spread
        if observed.familiarity is not None:
            values, squares = observed.familiarity
            self.familiarity = FAMILIARITY_REMEMBERED * self.familiarity + values
            self.familiarity_squares = FAMILIARITY_REMEMBERED * self.familiarity_squares + squares
            self.familiarity_count = FAMILIARITY_REMEMBERED * self.familiarity_count + observed.count

    def usual_familiarity(self) -> tuple[float, float] | None:
        """Mean and standard deviation of that of images of known classes; None until enough were observed."""
        if self.familiarity_count < ENOUGH:
            return None
        mean = self.familiarity / self.familiarity_count
        return mean, math.sqrt(max(self.familiarity_squares / self.familiarity_count - mean**2, 1e-12))

    def unknown(self, familiarity: Tensor) -> Tensor | None:
        """The share of images of known classes that are more familiar, `[N]`; None until enough were observed.

        It takes their familiarity to be normally distributed.
        """
        usual = self.usual_familiarity()
        if usual is None:
            return None
        mean, deviation = usual
        # The normal distribution in float32, the only type for which onnxruntime has it.
        share: Tensor = torch.special.ndtr(((mean - familiarity.double()) / deviation).float())
        return share

    def notes(self) -> list[str]:
        """What removing a class, or unlearning images, leaves here."""
        return ["the temperature of probabilities was fitted on all that was seen"] if self.count else []

    def temperature(self, prior: float | None, scores: Tensor) -> Tensor:
        """What scores `[N, C]` are divided by, `[N, 1]`; the unit is the method's `prior`, or the spread of scores."""
        unit = scores.new_full((scores.shape[0], 1), prior or 0.0, dtype=torch.float64)  # len() is fixed in a graph
        if prior is None:
            unit = unit + self.spread / self.count if self.count else _spread(scores).unsqueeze(1)
        return unit * self._factor(WIDE_DEVIATION if prior is None else PRIOR_DEVIATION)

    def _factor(self, deviation: float) -> float:
        """The factor with the least loss and distance from 1, between those of the grid by a parabola."""
        logs = [math.log(factor) for factor in FACTORS]
        total = [loss + (log / deviation) ** 2 / 2 for loss, log in zip(self.losses, logs, strict=True)]
        best = min(range(len(total)), key=total.__getitem__)
        if not 0 < best < len(total) - 1:
            return FACTORS[best]
        left, middle, right = total[best - 1 : best + 2]
        bend = left - 2 * middle + right
        step = (left - right) / (2 * bend) if bend > 0 else 0.0
        return math.exp(logs[best] + step * (logs[1] - logs[0]))


def observe(
    scores: Tensor, rows: Tensor, known: Tensor, prior: Tensor | None, familiarity: Tensor | None
) -> Observation | None:
    """What predictions before learning show: scores `[N, C]` for images of class rows `[N]`, where `known` `[N]`.

    The unit of an image's temperature is that of its class in `prior` `[C]`, or the mean spread of scores: a class that
    has few samples yet says nothing about how certain others are.
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
    spread = _spread(some)
    unit = spread.mean().expand(len(some)) if prior is None else prior.to(some)[rows[fair]]
    scaled = some / unit.unsqueeze(1)
    losses = [float(F.cross_entropy(scaled / factor, right, reduction="sum")) for factor in FACTORS]
    sums = None
    if familiarity is not None:
        usual = familiarity[fair].double()
        sums = float(usual.sum()), float(usual.square().sum())
    return Observation(tuple(losses), len(some), float(spread.sum()), sums)


def probabilities(scores: Tensor, temperature: Tensor | float) -> Tensor:
    """The softmax of scores `[N, C]` over the temperature, float64; 0 for a class of which nothing was learnt."""
    return (scores.double() / temperature).softmax(dim=1).nan_to_num(0.0)


def _spread(scores: Tensor) -> Tensor:
    """The standard deviation of each image's finite scores, `[N]`; 1 where they do not differ."""
    finite = scores.isfinite()
    values, counts = scores.double().where(finite, 0.0), finite.sum(1).clamp(min=1)
    mean = values.sum(1) / counts
    found = (((values - mean.unsqueeze(1)).square() * finite).sum(1) / counts).sqrt()
    return found.where(found > 0, 1.0)
