"""Classifiers for river: any prol learner over images, and streaming LDA over dictionaries of features."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

try:
    import narwhals.stable.v2 as nw
    from river import base
    from river.utils.dataframe import into_frame, into_series, to_native_frame, to_native_series, to_numpy
except ImportError as error:
    raise ImportError("this needs river 0.26 or later: install it with pip install 'prol[river]'") from error

import numpy as np
import torch
from numpy.typing import NDArray

from prol.classes import Label, read_labels
from prol.integrations.discriminant import Discriminant, Shrinkage, require_features, require_shrinkage
from prol.integrations.stored_learner import StoredLearner, renamed
from prol.learner import Learner
from prol.ranking import ranked

__all__ = ["PROLClassifier", "StreamingLDA"]


class PROLClassifier(base.Classifier):  # type: ignore[misc]
    """A prol learner with the interface of river, over images instead of dictionaries.

    An image is a uint8 array `[H, W, 3]` or a PIL image; a label is text or a whole number. By default each image is
    one step and none is stored. Many methods learn better from several images per step: with a larger `chunk`, images
    and labels wait in memory until a chunk is complete. They are part of copies and pickles.

    Args:
        method: a name that `prol methods` lists.
        backbone: a name for `prol.backbones.open_backbone`.
        options: options of the method, by name.
        chunk: images per step of `learn_one`.
        seed: seed of initial values and augmentation.
        device: as for `prol.create`.
        precision: as for `prol.create`.

    >>> images = np.random.default_rng(0).integers(0, 255, (3, 32, 32, 3), dtype=np.uint8)
    >>> model = PROLClassifier("ncm", device="cpu")
    >>> for image, label in zip(images, ["cat", "dog", "cat"]):
    ...     model.learn_one(image, label)
    >>> model.predict_one(images[1]), model.waiting
    ('dog', 0)
    """

    _multiclass = True

    def __init__(
        self,
        method: str = "prol_plus",
        backbone: str = "builtin",
        options: Mapping[str, Any] | None = None,
        chunk: int = 1,
        seed: int = 0,
        device: str = "auto",
        precision: str = "auto",
    ) -> None:
        if not isinstance(chunk, int) or chunk < 1:
            raise ValueError(f"chunk must be a whole number, at least 1, got {chunk!r}")
        self.method = method
        self.backbone = backbone
        self.options = options
        self.chunk = chunk
        self.seed = seed
        self.device = device
        self.precision = precision
        self._stored = StoredLearner()
        self._waiting: list[tuple[NDArray[np.uint8], Label]] = []

    @property
    def learner(self) -> Learner:
        """The prol learner, for everything beyond the interface of river; opened on first use."""
        return self._stored.open(self)

    @property
    def waiting(self) -> int:
        """Number of images in memory that have not been learnt yet."""
        return len(self._waiting)

    def learn_one(self, x: Any, y: Label) -> None:
        """Learns one image. One that is refused, with a ValueError, changes nothing."""
        if self.chunk == 1:
            self.learner.learn([x], [y])
            return
        [pixels], [label] = self.learner.backbone.read([x]), read_labels([y])
        self._waiting.append((pixels.movedim(0, -1).cpu().numpy().copy(), label))
        if len(self._waiting) >= self.chunk:
            self.learn_waiting()

    def learn_many(self, X: Any, y: Any) -> None:
        """Learns a batch `[N, H, W, 3]` or a list of images in one step, after the waiting images."""
        images, labels = self.learner.backbone.read(X), read_labels(y)
        if len(images) == len(labels):  # otherwise the learner raises, and nothing changes
            self.learn_waiting()
        self.learner.learn(images, labels)

    def learn_waiting(self) -> None:
        """Learns the waiting images, as at the end of a stream; if the step fails they are dropped."""
        chunk, self._waiting = self._waiting, []
        if chunk:
            self.learner.learn([image for image, _ in chunk], [label for _, label in chunk])

    def predict_proba_one(self, x: Any, **_: Any) -> dict[Label, float]:
        """Calibrated probabilities, classes in the order of arrival; empty before the first."""
        [probabilities] = self.predict_proba_many([x])
        return probabilities

    def predict_proba_many(self, X: Any) -> list[dict[Label, float]]:
        """The same for each image of a batch."""
        classes, scores = self.learner.classes, self.learner.predict(X)
        found = ranked(scores, classes, max(1, len(classes)), self.learner.probable(scores))
        by_label = [{one.label: one.probability for one in predictions} for predictions in found]
        return [{label: each[label] for label in classes if label in each} for each in by_label]

    def predict_many(self, X: Any) -> list[Label | None]:
        """The label with the highest score for each image, None before anything was learnt."""
        found = ranked(self.learner.predict(X), self.learner.classes)
        return [predictions[0].label if predictions else None for predictions in found]

    def predict_one(self, x: Any, **_: Any) -> Label | None:
        [label] = self.predict_many([x])
        return label

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(renamed(state))


class StreamingLDA(base.MiniBatchClassifier):  # type: ignore[misc]
    """Linear discriminant analysis in one pass, independent of the order of the stream up to rounding.

    Classes and features may appear at any time. A feature that is missing in a dictionary is zero, as in river's linear
    models; so is a null or NaN in a data frame. It stores second moments and class sums, never a sample: memory grows
    with the square of the number of features. The classifier is solved when predictions are requested, in cubic time.

    Args:
        shrinkage: how far the within-class covariance is shrunk towards a multiple of the identity, for standardised
            features: a number from 0 to 1, or "oas" to estimate it (Chen et al. 2010).
        priors: whether class frequencies are used as prior probabilities.

    >>> from river import datasets, evaluate, metrics
    >>> evaluate.progressive_val_score(datasets.Phishing(), StreamingLDA(), metrics.Accuracy())
    Accuracy: 89.19%

    References:
        T. Hayes, C. Kanan (2020). Deep Streaming Linear Discriminant Analysis. CVPR Workshops.
    """

    _multiclass = True

    def __init__(self, shrinkage: Shrinkage = "oas", priors: bool = True) -> None:
        require_shrinkage(shrinkage)
        self.shrinkage = shrinkage
        self.priors = priors
        self._discriminant = Discriminant()
        self._row_of: dict[Hashable, int] = {}
        self._column_of: dict[Hashable, int] = {}

    def learn_one(self, x: Mapping[Hashable, Any], y: Hashable) -> None:
        """Learns one sample. One that is refused, with a ValueError, changes nothing."""
        values = _read(x)
        self._learn(list(x), np.array([values]), [y])

    def learn_many(self, X: Any, y: Any) -> None:
        """Learns a data frame of any kind that narwhals supports, and the series of its labels."""
        frame, labels = into_frame(X), into_series(y).to_list()
        values = _read_frame(frame)
        if len(values) != len(labels):
            raise ValueError(f"{len(values)} rows but {len(labels)} labels: each row needs one label")
        self._learn(list(frame.columns), values, labels)

    def predict_proba_one(self, x: Mapping[Hashable, Any], **_: Any) -> dict[Hashable, float]:
        """The probability of each class, in the order of arrival; empty before the first."""
        if not self._row_of:
            return {}
        [probabilities] = self._probabilities(list(x), np.array([_read(x)])).tolist()
        return dict(zip(self._row_of, probabilities, strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """A data frame of X's kind with one column per class, named by the text of its label except in pandas."""
        frame = into_frame(X)
        probabilities = self._probabilities(list(frame.columns), _read_frame(frame))
        return to_native_frame({label: probabilities[:, row] for label, row in self._row_of.items()}, like=frame)

    def predict_many(self, X: Any) -> Any:
        """A series of X's kind with the most probable label of each row."""
        frame = into_frame(X)
        probabilities, labels = self._probabilities(list(frame.columns), _read_frame(frame)), list(self._row_of)
        best = [labels[row] for row in probabilities.argmax(axis=1)] if labels else [None] * len(probabilities)
        return to_native_series(best, name=None, like=frame)

    def _learn(self, names: Sequence[Hashable], values: NDArray[np.float64], labels: Sequence[Hashable]) -> None:
        features = torch.tensor(values, dtype=torch.float64)
        require_features(features)
        new_labels = [label for label in dict.fromkeys(labels) if label not in self._row_of]
        for label in new_labels:
            if label is None or label != label:
                raise ValueError(f"a label must not be missing, got {label!r}")
        # Sorted, so that the order of a dictionary makes no difference, not even in rounding.
        unknown = (name for name in names if name not in self._column_of)
        new_names = sorted(unknown, key=lambda name: (type(name).__name__, str(name)))
        self._row_of |= {label: len(self._row_of) + number for number, label in enumerate(new_labels)}
        self._column_of |= {name: len(self._column_of) + number for number, name in enumerate(new_names)}
        self._discriminant.add_classes(len(new_labels))
        self._discriminant.widen(len(self._column_of))
        if len(values):
            rows = torch.tensor([self._row_of[label] for label in labels])
            self._discriminant.learn(self._aligned(names, features), rows)

    def _probabilities(self, names: Sequence[Hashable], values: NDArray[np.float64]) -> NDArray[np.float64]:
        """`[B, C]`, classes in the order of arrival."""
        aligned = self._aligned(names, torch.tensor(values, dtype=torch.float64))
        if not self._row_of:
            return np.zeros((len(values), 0))
        return np.asarray(self._discriminant.scores(aligned, self.shrinkage, self.priors).softmax(dim=1).numpy())

    def _aligned(self, names: Sequence[Hashable], features: torch.Tensor) -> torch.Tensor:
        """`[B, width]` with each feature in its column; unknown features are dropped."""
        known = [place for place, name in enumerate(names) if name in self._column_of]
        aligned = torch.zeros(len(features), len(self._column_of), dtype=torch.float64)
        aligned[:, [self._column_of[names[place]] for place in known]] = features[:, known]
        return aligned


def _read(x: Mapping[Hashable, Any]) -> list[float]:
    """The values of a dictionary; refuses those that are not finite numbers and names the feature."""
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
                f"feature {name!r} must be a finite number, got {value!r}: encode text, and leave out missing values"
            )
        values.append(number)
    return values


def _read_frame(frame: nw.DataFrame[Any]) -> NDArray[np.float64]:
    """The values of a data frame `[B, M]`, zero where they are missing."""
    for name, kind in frame.schema.items():
        if kind in (nw.String, nw.Categorical, nw.Enum, nw.Binary):
            raise ValueError(f"feature {name!r} must hold numbers, not {kind}: encode text")
    values = to_numpy(frame)
    return np.where(np.isnan(values), 0.0, values)


# Pickles of version 0.1 name these modules.
sys.modules |= {f"{__name__}.{name}": sys.modules[__name__] for name in ("images", "features")}
