"""Streaming LDA over plain feature vectors, as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from prol.integrations.discriminant import Discriminant, Shrinkage, require_features, require_shrinkage
from prol.integrations.scikit.class_order import Labels, margins, probabilities, with_newcomers


class StreamingLDA(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear discriminant analysis that learns in one pass, in any order, and meets new classes at any time.

    `partial_fit` chunk by chunk gives what `fit` gives on everything, up to rounding, and `classes=` is not needed.
    It keeps second moments and class sums, never a sample. The classifier is solved when it is asked.

    Parameters
    ----------
    shrinkage
        How far the covariance within classes is shrunk towards a multiple of the identity, with features in units of
        their standard deviation: a share from 0 to 1, or "oas" to have it estimated (Chen et al. 2010).
    priors
        Whether classes of which more was seen are more probable beforehand.

    Attributes
    ----------
    classes_
        Sorted labels.
    n_features_in_
        Number of features.
    discriminant_
        What was learnt; its rows are in the order in which classes were met.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = StreamingLDA()
    >>> for start in range(0, 150, 10):  # sorted by class: each new one comes after the last one ended
    ...     model = model.partial_fit(X[start : start + 10], y[start : start + 10])
    >>> model.classes_.tolist(), round(model.score(X, y), 2)
    ([0, 1, 2], 0.98)

    References
    ----------
    T. Hayes, C. Kanan (2020). Deep Streaming Linear Discriminant Analysis. CVPR Workshops.
    """

    discriminant_: Discriminant
    classes_: Labels
    _met: Labels
    _columns: NDArray[np.intp]

    def __init__(self, shrinkage: Shrinkage = "oas", priors: bool = True) -> None:
        self.shrinkage = shrinkage
        self.priors = priors

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forgets everything and learns from features `[N, M]` and labels `[N]`."""
        return self._learn(X, y, None, first=True)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Learns on. `classes` may announce labels, which are not needed; others than these may still come."""
        return self._learn(X, y, classes, first=not self.__sklearn_is_fitted__())

    def _learn(self, X: Any, y: Any, classes: ArrayLike | None, first: bool) -> Self:
        require_shrinkage(self.shrinkage)
        X, y = validate_data(self, X, y, reset=first, dtype=np.float64)
        check_classification_targets(y)
        announced = y[:0] if classes is None else np.asarray(classes)
        met: Labels = with_newcomers(None if first else self._met, announced, y)
        discriminant = Discriminant(X.shape[1]) if first else self.discriminant_
        columns = np.argsort(met)
        rows = columns[np.searchsorted(met, y, sorter=columns)]
        require_features(torch.tensor(X))
        discriminant.add_classes(len(met) - discriminant.classes)
        discriminant.learn(torch.tensor(X), torch.tensor(rows))
        self.discriminant_, self._met, self._columns, self.classes_ = discriminant, met, columns, met[columns]
        return self

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores `[N, C]`, or of two classes `[N]`, how much the second of `classes_` is ahead."""
        return margins(self._scores(X))

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities `[N, C]` in the order of `classes_`, if classes were Gaussian with one covariance."""
        return probabilities(self._scores(X))

    def predict(self, X: ArrayLike) -> Labels:
        """The most probable label of each."""
        winners = self._scores(X).argmax(axis=1)
        labels: Labels = self.classes_[winners]
        return labels

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        require_shrinkage(self.shrinkage)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scores = self.discriminant_.scores(torch.tensor(X), self.shrinkage, bool(self.priors)).numpy()
        return np.asarray(scores[:, self._columns])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "discriminant_")
