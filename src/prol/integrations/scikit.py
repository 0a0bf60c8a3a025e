"""Classifiers for scikit-learn: any prol learner over images, and streaming LDA over feature vectors."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError as error:
    raise ImportError("this needs scikit-learn: install it with pip install 'prol[sklearn]'") from error

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from prol.classes import Label, read_labels, require_label_each
from prol.integrations.discriminant import Discriminant, Shrinkage, require_features, require_shrinkage
from prol.integrations.stored_learner import StoredLearner, renamed
from prol.learner import Learner

__all__ = ["PROLClassifier", "StreamingLDA"]

Labels = NDArray[Any]


class _SortedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """scikit-learn sorts `classes_`; a learner has them in the order in which they arrived."""

    classes_: Labels

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """Scores `[N, C]` in the order of `classes_`; minus infinity for a class without any sample."""
        raise NotImplementedError

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Scores `[N, C]` in the order of `classes_`; with two classes `[N]`, the second score minus the first."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The softmax of the scores `[N, C]`, in the order of `classes_`."""
        scores = self._scores(X)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> Labels:
        """The label with the highest score, `[N]`."""
        best = self._scores(X).argmax(axis=1)
        labels: Labels = self.classes_[best]
        return labels


class PROLClassifier(_SortedClassifier):
    """A prol learner with the interface of scikit-learn.

    Images are a uint8 array `[N, H, W, 3]`, or a list of PIL images or arrays of any sizes; labels are text or whole
    numbers. One call of `fit` or `partial_fit` is one pass over its images in the given order, in chunks, each of which
    is one step of the learner. Images are checked before the first step: a call that is refused changes nothing.
    `predict_proba` is calibrated on predictions made before learning.

    Args:
        method: a name that `prol methods` lists.
        backbone: a name for `prol.backbones.open_backbone`.
        options: options of the method, by name.
        chunk: images per step.
        seed: seed of initial values and augmentation.
        device: as for `prol.create`.
        precision: as for `prol.create`.

    Attributes:
        classes_: sorted labels; those of the learner are in the order of their arrival.
        learner_: the prol learner, for everything beyond the interface of scikit-learn.

    >>> images = np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8)
    >>> model = PROLClassifier("ncm", device="cpu").partial_fit(images, ["eel", "cat", "eel", "dog"])
    >>> model.classes_.tolist(), model.learner_.classes
    (['cat', 'dog', 'eel'], ['eel', 'cat', 'dog'])
    >>> model.predict(images[1:]).tolist()
    ['cat', 'eel', 'dog']
    """

    _stored: StoredLearner

    def __init__(
        self,
        method: str = "prol_plus",
        backbone: str = "builtin",
        options: Mapping[str, Any] | None = None,
        chunk: int = 10,
        seed: int = 0,
        device: str = "auto",
        precision: str = "auto",
    ) -> None:
        self.method = method
        self.backbone = backbone
        self.options = options
        self.chunk = chunk
        self.seed = seed
        self.device = device
        self.precision = precision

    def fit(self, X: Any, y: Any) -> Self:
        """Learns from images and labels from scratch; if that fails, the earlier state remains."""
        return self._learn(StoredLearner(), X, y, None)

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:
        """Continues to learn. `classes` may list labels to have columns for at once; the learner is not given them."""
        return self._learn(self._stored if self.__sklearn_is_fitted__() else StoredLearner(), X, y, classes)

    def _learn(self, stored: StoredLearner, X: Any, y: Any, classes: ArrayLike | None) -> Self:
        if not isinstance(self.chunk, int) or self.chunk < 1:
            raise ValueError(f"chunk must be a whole number, at least 1, got {self.chunk!r}")
        learner = stored.open(self)
        pixels, labels = learner.backbone.read(X), _read_targets(y)
        if not len(pixels):
            raise ValueError("there are no images: a step needs at least one")
        require_label_each(len(pixels), labels)
        continued = stored is getattr(self, "_stored", None)
        announced: list[Label] = [] if classes is None else read_labels(classes)
        known = _extended(self.classes_ if continued else None, _label_array(announced), _label_array(labels[:1]))
        _extended(known, _label_array(labels))  # mixed labels are refused before the first step
        for start in range(0, len(labels), self.chunk):
            part = slice(start, start + self.chunk)
            learner.learn(pixels[part], labels[part])
            known = np.sort(_extended(known, _label_array(labels[part])))
            if continued:  # a later step may fail, and these have been learnt
                self.classes_ = known
        self._stored, self.classes_ = stored, known
        return self

    @property
    def learner_(self) -> Learner:
        check_is_fitted(self)
        return self._stored.open(self)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Calibrated probabilities `[N, C]`, in the order of `classes_`."""
        scores = torch.from_numpy(self._scores(X))
        return np.asarray(self.learner_.probable(scores).numpy())

    def _scores(self, X: Any) -> NDArray[np.float64]:
        learner = self.learner_
        found = learner.predict(X).double().numpy()
        if np.isnan(found).any():
            raise ValueError("some scores are not finite numbers: the learner's state is damaged")
        scores = np.full((len(found), len(self.classes_)), -np.inf)
        scores[:, np.searchsorted(self.classes_, _label_array(learner.classes))] = found
        return scores

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_stored")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(renamed(state))


class StreamingLDA(_SortedClassifier):
    """Linear discriminant analysis in one pass, in any order, with new classes at any time.

    `partial_fit` on chunks gives what `fit` gives on all data, up to rounding, and does not need `classes=`. It stores
    second moments and class sums, never a sample. The classifier is solved when predictions are requested.
    `predict_proba` is exact for Gaussian classes with a common covariance.

    Args:
        shrinkage: how far the within-class covariance is shrunk towards a multiple of the identity, for standardised
            features: a number from 0 to 1, or "oas" to estimate it (Chen et al. 2010).
        priors: whether class frequencies are used as prior probabilities.

    Attributes:
        classes_: sorted labels.
        n_features_in_: number of features.
        discriminant_: the learnt state; its rows are in the order of the classes' arrival.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = StreamingLDA()
    >>> for start in range(0, 150, 10):  # sorted by class: each new one arrives after the last sample of the one before
    ...     model = model.partial_fit(X[start : start + 10], y[start : start + 10])
    >>> model.classes_.tolist(), round(model.score(X, y), 2)
    ([0, 1, 2], 0.98)

    References:
        T. Hayes, C. Kanan (2020). Deep Streaming Linear Discriminant Analysis. CVPR Workshops.
    """

    discriminant_: Discriminant
    _met: Labels
    _columns: NDArray[np.intp]

    def __init__(self, shrinkage: Shrinkage = "oas", priors: bool = True) -> None:
        self.shrinkage = shrinkage
        self.priors = priors

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learns from features `[N, M]` and labels `[N]` from scratch."""
        return self._learn(X, y, None, first=True)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Continues to learn. `classes` may announce labels; it is not needed, and other labels may follow."""
        return self._learn(X, y, classes, first=not self.__sklearn_is_fitted__())

    def _learn(self, X: Any, y: Any, classes: ArrayLike | None, first: bool) -> Self:
        require_shrinkage(self.shrinkage)
        X, y = validate_data(self, X, y, reset=first, dtype=np.float64)
        check_classification_targets(y)
        announced = y[:0] if classes is None else np.asarray(classes)
        met = _extended(None if first else self._met, announced, y)
        discriminant = Discriminant(X.shape[1]) if first else self.discriminant_
        columns = np.argsort(met)
        rows = columns[np.searchsorted(met, y, sorter=columns)]
        require_features(torch.tensor(X))
        discriminant.add_classes(len(met) - discriminant.classes)
        discriminant.learn(torch.tensor(X), torch.tensor(rows))
        self.discriminant_, self._met, self._columns, self.classes_ = discriminant, met, columns, met[columns]
        return self

    def _scores(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        require_shrinkage(self.shrinkage)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        scores = self.discriminant_.scores(torch.tensor(X), self.shrinkage, bool(self.priors)).numpy()
        return np.asarray(scores[:, self._columns])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "discriminant_")


def _read_targets(y: Any) -> list[Label]:
    """Labels as scikit-learn passes them: a column counts as one row of labels, floats as whole numbers if they are.

    >>> _read_targets(np.array([3.0, 1.0]))
    [3, 1]
    """
    if y is None:
        raise ValueError("this classifier requires y to be passed, but the target y is None")
    # Lists may mix text and numbers, which an array would turn into text.
    given = y.cpu() if isinstance(y, torch.Tensor) else y
    labels = column_or_1d(_label_array(given) if isinstance(given, list | tuple) else np.asarray(given), warn=True)
    if labels.dtype.kind == "f":
        check_classification_targets(labels)
        labels = labels.astype(np.int64)
    return read_labels(labels)


def _extended(known: Labels | None, *more: Labels) -> Labels:
    """`known` labels in their order, then the sorted new labels of each array in `more`.

    >>> _extended(np.array(["eel"]), np.array(["dog", "cat", "dog"])).tolist()
    ['eel', 'cat', 'dog']
    """
    groups = [group for group in (known, *more) if group is not None and len(group)]
    if len({isinstance(_label_array(group).flat[0], str) for group in groups}) > 1:
        raise ValueError("labels must be all text or all numbers: scikit-learn sorts its classes; turn them into text")
    labels = groups[0][:0] if known is None else known
    for group in more:
        labels = np.concatenate([labels, np.setdiff1d(group, labels)]) if len(group) else labels
    return labels


def _label_array(labels: Sequence[Any] | Labels) -> Labels:
    """Labels as an array. Mixed labels are refused, since numpy would turn the numbers into text."""
    if len({isinstance(label, str) for label in labels}) > 1:
        raise ValueError("labels must be all text or all numbers, but these are some of each: turn them into text")
    return np.asarray(labels)


# Pickles of version 0.1 name these modules.
sys.modules |= {f"{__name__}.{name}": sys.modules[__name__] for name in ("images", "features")}
