"""Any prol learner over images, as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from prol.integrations.kept_learner import KeptLearner, Recipe
from prol.integrations.scikit.class_order import Labels, label_array, margins, probabilities, with_newcomers
from prol.labels import Label, read_labels
from prol.learner import Learner


class PROLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A prol learner with scikit-learn's verbs.

    Images are a uint8 array `[N, H, W, 3]`, or a list of PIL images or arrays of any sizes; labels are text or whole
    numbers. One call of `fit` or `partial_fit` is one pass over its images in the order given, in chunks, each of which
    is one step of the learner. Images are checked before the first step: a call that is refused changes nothing.

    Parameters
    ----------
    method
        A name that `prol methods` lists.
    backbone
        A name for `prol.backbones.open_backbone`.
    options
        The method's own, by name.
    chunk
        How many images a step learns from.
    seed
        Drives initial values and augmentation.
    device, precision
        As for `prol.create`.

    Attributes
    ----------
    classes_
        Sorted labels; the learner's own are in the order in which they were met.
    learner_
        The prol learner, for all that scikit-learn has no word for.

    >>> images = np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8)
    >>> model = PROLClassifier("ncm", device="cpu").partial_fit(images, ["eel", "cat", "eel", "dog"])
    >>> model.classes_.tolist(), model.learner_.classes
    (['cat', 'dog', 'eel'], ['eel', 'cat', 'dog'])
    >>> model.predict(images[1:]).tolist()
    ['cat', 'eel', 'dog']
    """

    classes_: Labels
    _kept: KeptLearner

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
        """Forgets everything and learns from images and their labels; what was learnt stays if that fails."""
        return self._learn(KeptLearner(), X, y, None)

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:
        """Learns on. `classes` may name labels to have columns for at once; the learner is not told of them."""
        if not self.__sklearn_is_fitted__():
            return self._learn(KeptLearner(), X, y, classes)
        return self._learn(self._kept, X, y, classes)

    def _learn(self, kept: KeptLearner, X: Any, y: Any, classes: ArrayLike | None) -> Self:
        if not isinstance(self.chunk, int) or self.chunk < 1:
            raise ValueError(f"chunk must be a whole number, at least 1, got {self.chunk!r}")
        learner = kept.open(self._recipe())
        pixels, labels = learner.backbone.read(X), read_labels(y)
        if not len(pixels):
            raise ValueError("there are no images: a step needs at least one")
        if len(pixels) != len(labels):
            raise ValueError(f"{len(pixels)} images but {len(labels)} labels: each image needs one label")
        going_on = kept is getattr(self, "_kept", None)
        announced: list[Label] = [] if classes is None else read_labels(classes)
        found = with_newcomers(self.classes_ if going_on else None, label_array(announced), label_array(labels[:1]))
        with_newcomers(found, label_array(labels))  # refused now, if at all
        for start in range(0, len(labels), self.chunk):
            part = slice(start, start + self.chunk)
            learner.learn(pixels[part], labels[part])
            found = np.sort(with_newcomers(found, label_array(labels[part])))
            if going_on:  # a later step may fail: what was learnt until then can be asked
                self.classes_ = found
        self._kept, self.classes_ = kept, found
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The learner's scores `[N, C]`, or of two classes `[N]`, how much the second of `classes_` is ahead."""
        return margins(self._scores(X))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The softmax of the scores `[N, C]`, in the order of `classes_`; it is worth what the scores are worth."""
        return probabilities(self._scores(X))

    def predict(self, X: Any) -> Labels:
        """The label of the highest score of each image."""
        winners = self._scores(X).argmax(axis=1)
        labels: Labels = self.classes_[winners]
        return labels

    @property
    def learner_(self) -> Learner:
        check_is_fitted(self)
        return self._kept.open(self._recipe())

    def _scores(self, X: Any) -> NDArray[np.float64]:
        """`[N, C]` in the order of `classes_`; minus infinity for a class that was announced and not met."""
        learner = self.learner_
        met = learner.predict(X).double().numpy()
        if np.isnan(met).any():
            raise ValueError("some scores are not finite numbers: what was learnt is damaged")
        scores = np.full((len(met), len(self.classes_)), -np.inf)
        scores[:, np.searchsorted(self.classes_, label_array(learner.classes))] = met
        return scores

    def _recipe(self) -> Recipe:
        return Recipe(self.method, self.backbone, self.options, self.seed, self.device, self.precision)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_kept")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags
