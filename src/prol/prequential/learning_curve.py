"""How accuracy grows with images per class, from predictions made before learning, and what more images would bring.

The error of a class of which n images are known is taken to be A ((K - 1) / (C - 1))^0.45 n^-β among K of C classes.
The errors of each bin are its expected ones by confidence, corrected by its gap between accuracy and confidence, since
confidences vary less than counts of errors. Gaps of bins have a normal prior of five points around the gap over all,
which has one of ten points. A and β are fitted as for Poisson counts, β with a normal prior that depends on the method.
All constants were chosen on training images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prol.classes import Label
from prol.prediction import data_frame
from prol.prequential.statistics import BINS, SLOPE, Prequential

if TYPE_CHECKING:
    import pandas

MORE = 10
"""Images per class that an estimate adds unless another number is given."""
GROWTH = 0.45
"""Exponent of the classes other than the own one."""
GAP_DEVIATION, BIN_DEVIATION = 0.1, 0.05
"""Standard deviation of the gap between accuracy and confidence, and of the gap of a bin about that of all."""
VARIANCE = 0.09
"""That of one prediction about its confidence."""
MODEL_DEVIATION = 0.03
"""What is left between the model and held-out images, as a share of the error."""
FEWEST = 50
"""Predictions that an estimate takes."""
QUANTILE = 1.2816
"""Standard deviations on both sides of the mean of a normal distribution that hold 80 %."""
LEAST_ERRORS = 0.25
"""Errors that are assumed where none is expected."""
SLOPES = np.linspace(-0.2, 1.2, 57)


@dataclass(frozen=True)
class Estimate:
    """Mean accuracy over classes now and with `more` images of each, in percent; an 80 % interval from `low` to `high`.

    >>> Estimate(10, 61.2, 67.8, 64.0, 71.6)
    10 more images per class: 61.2 % -> 67.8 % (80 % interval from 64.0 to 71.6 %)
    """

    more: int
    now: float
    after: float
    low: float
    high: float

    def __repr__(self) -> str:
        return (
            f"{self.more} more images per class: {self.now:.1f} % -> {self.after:.1f} % "
            f"(80 % interval from {self.low:.1f} to {self.high:.1f} %)"
        )


@dataclass(frozen=True)
class LearningCurve:
    """Predictions made before learning, by how many images of the class were known by then.

    `images` `[C]` are those learnt of each class by now, `bins` `[C, 24, 4]` the sums that
    `prol.prequential.statistics.Prequential` stores.
    """

    classes: tuple[Label, ...]
    images: NDArray[np.float64]
    bins: NDArray[np.float64]
    slope: tuple[float, float] = SLOPE
    """Mean and standard deviation of β before there is evidence."""

    @classmethod
    def of(
        cls, stored: Prequential | None, classes: Sequence[Label], slope: tuple[float, float] = SLOPE
    ) -> LearningCurve:
        if stored is None:
            raise ValueError("no predictions were recorded: call enable_prequential() before learn")
        images, bins = stored.images.rows.cpu().numpy().copy(), stored.bins.rows.cpu().numpy().copy()
        return cls(tuple(classes), images, bins, slope)

    def points(self, label: Label | None = None) -> list[tuple[int, int, int, float]]:
        """Images known from and to, predictions, and the accuracy of these in percent; of one class, or of all."""
        chosen = self.bins.sum(0) if label is None else self.bins[self.classes.index(label)]
        found = []
        for first in range(0, BINS, 2):
            count, right = chosen[first : first + 2, :2].sum(0)
            if count:
                start = 2 ** (first // 2)
                found.append((start, 2 * start - 1, int(count), 100 * right / count))
        return found

    def estimate(self, more: int = MORE) -> Estimate | None:
        """The accuracy on images like those learnt, once so many more are learnt of each class; None from too few.

        It takes images to come in no order: of classes that came one after the other, the first were easier to predict.
        """
        if more < 0:
            raise ValueError(f"more must be at least 0, got {more}")
        seen = self.images > 0
        pooled = self.bins.sum(0)
        if seen.sum() < 2 or pooled[:, 0].sum() < FEWEST:
            return None
        fit = _fitted(pooled, int(seen.sum()), self.slope)
        now, after = (fit.errors(self.images[seen] + extra) for extra in (0, more))
        error = float(fit.weights @ after)
        spread = float(fit.weights @ (after - error) ** 2) + (fit.level_deviation**2 + MODEL_DEVIATION**2) * error**2
        half = QUANTILE * math.sqrt(spread)
        low, high = (100 * min(1.0, max(0.0, 1 - error + side * half)) for side in (-1, 1))
        return Estimate(more, 100 * (1 - float(fit.weights @ now)), 100 * (1 - error), low, high)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON; points are lists of images from and to, predictions and accuracy."""
        estimate = self.estimate()
        return {
            "classes": list(self.classes),
            "images": self.images.tolist(),
            "points": [list(point) for point in self.points()],
            "points_per_class": [[list(point) for point in self.points(label)] for label in self.classes],
            "estimate": None if estimate is None else asdict(estimate),
        }

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each class and doubling of its images; needs pandas."""
        rows = [(label, *point) for label in self.classes for point in self.points(label)]
        names = ("class", "images_from", "images_to", "predictions", "accuracy")
        return data_frame({name: [row[place] for row in rows] for place, name in enumerate(names)})

    def _cells(self) -> list[list[str]]:
        cells = [["images of the class", "predictions", "accuracy"]]
        for start, end, count, accuracy in self.points():
            cells.append([str(start) if start == end else f"{start} to {end}", f"{count:,}", f"{accuracy:.1f} %"])
        return cells

    def _remark(self) -> str:
        estimate = self.estimate()
        return f"no estimate from fewer than {FEWEST} predictions" if estimate is None else repr(estimate)

    def __repr__(self) -> str:
        lines = [f"{a:19}  {b:>11}  {c:>8}" for a, b, c in self._cells()]
        return "\n".join(["accuracy of predictions before learning", *lines, self._remark()])

    def _repr_html_(self) -> str:
        rows = (f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._cells())
        return f"<table>{''.join(rows)}</table><p>{escape(self._remark())}</p>"


@dataclass(frozen=True)
class _Fit:
    """The level A `[S]` for each of the slopes `[S]`, and their posterior `weights` `[S]`."""

    levels: NDArray[np.float64]
    weights: NDArray[np.float64]
    level_deviation: float
    """Standard deviation of the logarithm of A."""

    def errors(self, images: NDArray[np.float64]) -> NDArray[np.float64]:
        """The mean error over classes of so many images each, for each slope `[S]`."""
        return np.array(
            [min(1.0, level * float((images**-slope).mean())) for level, slope in zip(self.levels, SLOPES, strict=True)]
        )


def _fitted(pooled: NDArray[np.float64], classes: int, prior: tuple[float, float]) -> _Fit:
    """From sums `[24, 4]` over so many classes, with this prior of β."""
    gap, deviation = _calibration_gap(pooled)
    used = pooled[:, 0] > 0
    middles = np.array([middle(number) for number in range(BINS)])
    count, right, confidence, known = pooled[used].T
    own = count / (count + VARIANCE / BIN_DEVIATION**2)  # the share of its own gap in that of a bin
    wrong = count - confidence - own * (right - confidence) - (1 - own) * count * gap
    wrong = np.maximum(wrong, LEAST_ERRORS / used.sum())
    log_images, others = np.log(middles[used]), np.maximum(known / count - 1, 1) / max(classes - 1, 1)
    logs, levels = [], []
    for slope in SLOPES:
        shape = GROWTH * np.log(others) - slope * log_images
        level = wrong.sum() / (count * np.exp(shape)).sum()
        logs.append(float((wrong * (np.log(level) + shape)).sum()) - ((slope - prior[0]) / prior[1]) ** 2 / 2)
        levels.append(level)
    weights = np.exp(np.array(logs) - max(logs))
    return _Fit(np.array(levels), weights / weights.sum(), deviation / (wrong.sum() / count.sum()))


def _calibration_gap(pooled: NDArray[np.float64]) -> tuple[float, float]:
    """Accuracy less confidence over all predictions, shrunk towards 0, and the standard deviation that is left."""
    count, right, confidence, _ = pooled.sum(0)
    share = count / (count + VARIANCE / GAP_DEVIATION**2)
    gap = share * (right - confidence) / count
    return gap, math.sqrt(GAP_DEVIATION**2 * (1 - share) + VARIANCE / count * share)


def middle(number: int) -> float:
    """The geometric mean of the first and last number of images of a bin.

    >>> [round(middle(number), 1) for number in (0, 3, 6, 7)]
    [1.0, 3.0, 9.4, 13.4]
    """
    low, high = math.ceil(2 ** (number / 2)), math.ceil(2 ** ((number + 1) / 2)) - 1
    return math.sqrt(low * max(low, high))
