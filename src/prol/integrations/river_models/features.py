"""Streaming LDA over dictionaries of features, as a river classifier."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import torch
from numpy.typing import NDArray
from river import base
from river.utils.dataframe import into_frame, into_series, to_native_frame, to_native_series, to_numpy

from prol.integrations.discriminant import Discriminant, Shrinkage, require_features, require_shrinkage


class StreamingLDA(base.MiniBatchClassifier):  # type: ignore[misc]
    """Linear discriminant analysis in one pass, the same in any order of the stream up to rounding.

    Classes and features may come at any time. A feature that is not in a dictionary is zero there, as in river's linear
    models; one that is missing in a row of a data frame (null or NaN) is not in that row. It keeps second moments and
    class sums, never a sample: numbers that grow with the square of the number of features. The classifier is solved
    when it is asked, which takes the cube of it.

    Parameters
    ----------
    shrinkage
        How far the covariance within classes is shrunk towards a multiple of the identity, with features in units of
        their standard deviation: a share from 0 to 1, or "oas" to have it estimated (Chen et al. 2010).
    priors
        Whether classes of which more was seen are more probable beforehand.

    >>> from river import datasets, evaluate, metrics
    >>> evaluate.progressive_val_score(datasets.Phishing(), StreamingLDA(), metrics.Accuracy())
    Accuracy: 89.19%

    References
    ----------
    T. Hayes, C. Kanan (2020). Deep Streaming Linear Discriminant Analysis. CVPR Workshops.
    """

    def __init__(self, shrinkage: Shrinkage = "oas", priors: bool = True) -> None:
        require_shrinkage(shrinkage)
        self.shrinkage = shrinkage
        self.priors = priors
        self._discriminant = Discriminant()
        self._row_of: dict[Hashable, int] = {}
        self._column_of: dict[Hashable, int] = {}

    @property
    def _multiclass(self) -> bool:
        return True

    def learn_one(self, x: Mapping[Hashable, Any], y: Hashable) -> None:
        """Takes in one sample. One that is refused, with a ValueError, changes nothing."""
        values = _read(x)
        self._learn(list(x), np.array([values]), [y])

    def learn_many(self, X: Any, y: Any) -> None:
        """Takes in a data frame of any kind that narwhals knows, and the series of its labels."""
        frame, labels = into_frame(X), into_series(y).to_list()
        values = _read_frame(frame)
        if len(values) != len(labels):
            raise ValueError(f"{len(values)} rows but {len(labels)} labels: each row needs one label")
        self._learn(list(frame.columns), values, labels)

    def predict_proba_one(self, x: Mapping[Hashable, Any], **_: Any) -> dict[Hashable, float]:
        """The probability of each class, in the order in which they were met; empty before the first."""
        if not self._row_of:
            return {}
        [shares] = self._probabilities(list(x), np.array([_read(x)])).tolist()
        return dict(zip(self._row_of, shares, strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """A data frame of X's kind with a column a class; but for pandas, columns are named by the labels' text."""
        frame = into_frame(X)
        shares = self._probabilities(list(frame.columns), _read_frame(frame))
        return to_native_frame({label: shares[:, row] for label, row in self._row_of.items()}, like=frame)

    def predict_many(self, X: Any) -> Any:
        """A series of X's kind with the most probable label of each row."""
        frame = into_frame(X)
        shares, labels = self._probabilities(list(frame.columns), _read_frame(frame)), list(self._row_of)
        winners = [labels[row] for row in shares.argmax(axis=1)] if labels else [None] * len(shares)
        return to_native_series(winners, name=None, like=frame)

    def _learn(self, names: Sequence[Hashable], values: NDArray[np.float64], labels: Sequence[Hashable]) -> None:
        features = torch.tensor(values, dtype=torch.float64)
        require_features(features)
        unmet = [label for label in dict.fromkeys(labels) if label not in self._row_of]
        for label in unmet:
            _require_label(label)
        # Sorted, so that the order of a dictionary makes no difference, not even in rounding.
        unknown = sorted((name for name in names if name not in self._column_of), key=_by_name)
        self._row_of |= {label: len(self._row_of) + number for number, label in enumerate(unmet)}
        self._column_of |= {name: len(self._column_of) + number for number, name in enumerate(unknown)}
        self._discriminant.add_classes(len(unmet))
        self._discriminant.widen(len(self._column_of))
        if len(values):
            rows = torch.tensor([self._row_of[label] for label in labels])
            self._discriminant.learn(self._placed(names, features), rows)

    def _probabilities(self, names: Sequence[Hashable], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[B, C]` in the order in which classes were met."""
        placed = self._placed(names, torch.tensor(values, dtype=torch.float64))
        if not self._row_of:
            return np.zeros((len(values), 0))
        return np.asarray(self._discriminant.scores(placed, self.shrinkage, self.priors).softmax(dim=1).numpy())

    def _placed(self, names: Sequence[Hashable], features: torch.Tensor) -> torch.Tensor:
        """`[B, width]` with each feature in its column; those never learnt from are left out."""
        known = [place for place, name in enumerate(names) if name in self._column_of]
        placed = torch.zeros(len(features), len(self._column_of), dtype=torch.float64)
        placed[:, [self._column_of[names[place]] for place in known]] = features[:, known]
        return placed


def _read(x: Mapping[Hashable, Any]) -> list[float]:
    """The values of a dictionary; what is no finite number is refused by name."""
    if not isinstance(x, Mapping):
        raise ValueError(f"features must be a dictionary of numbers by name, got a {type(x).__name__}")
    values = []
    for name, value in x.items():
        try:
            number = math.nan if isinstance(value, str | bytes) else float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(
                f"feature {name!r} must be a finite number, got {value!r}: encode text, and leave out what is missing"
            )
        values.append(number)
    return values


def _read_frame(frame: nw.DataFrame[Any]) -> NDArray[np.float64]:
    """The values of a data frame `[B, M]`, zero for what is missing."""
    for name, kind in frame.schema.items():
        if kind in (nw.String, nw.Categorical, nw.Enum, nw.Binary):
            raise ValueError(f"feature {name!r} must hold numbers, not {kind}: encode text")
    values = to_numpy(frame)
    return np.where(np.isnan(values), 0.0, values)


def _require_label(label: Hashable) -> None:
    if label is None or label != label:
        raise ValueError(f"a label must not be missing, got {label!r}")


def _by_name(name: Hashable) -> tuple[str, str]:
    return type(name).__name__, str(name)
