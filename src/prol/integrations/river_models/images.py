"""Any prol learner over images, as a river classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river import base

from prol.answers import ranked
from prol.integrations.kept_learner import KeptLearner, Recipe
from prol.labels import Label, read_labels
from prol.learner import Learner


class PROLClassifier(base.Classifier):  # type: ignore[misc]
    """A prol learner with river's verbs, over images instead of dictionaries.

    An image is a uint8 array `[H, W, 3]` or a PIL image; a label is text or a whole number. By default each image is a
    step of its own and none is kept. Many methods learn better from several at a time: with a larger `chunk` so many
    images and labels wait in memory, unlearnt, until there is a chunk of them. They are part of copies and pickles.

    Parameters
    ----------
    method
        A name that `prol methods` lists.
    backbone
        A name for `prol.backbones.open_backbone`.
    options
        The method's own, by name.
    chunk
        How many images a step of `learn_one` learns from.
    seed
        Drives initial values and augmentation.
    device, precision
        As for `prol.create`.

    >>> images = np.random.default_rng(0).integers(0, 255, (3, 32, 32, 3), dtype=np.uint8)
    >>> model = PROLClassifier("ncm", device="cpu")
    >>> for image, label in zip(images, ["cat", "dog", "cat"]):
    ...     model.learn_one(image, label)
    >>> model.predict_one(images[1]), model.waiting
    ('dog', 0)
    """

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
        self._kept = KeptLearner()
        self._waiting: list[tuple[NDArray[np.uint8], Label]] = []

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def learner(self) -> Learner:
        """The prol learner, for all that river has no word for; opened on first use."""
        return self._kept.open(Recipe(self.method, self.backbone, self.options, self.seed, self.device, self.precision))

    @property
    def waiting(self) -> int:
        """How many images are held in memory and not learnt yet."""
        return len(self._waiting)

    def learn_one(self, x: Any, y: Label) -> None:
        """One image. What is refused, with a ValueError, changes nothing."""
        if self.chunk == 1:
            self.learner.learn([x], [y])
            return
        [pixels], [label] = self.learner.backbone.read([x]), read_labels([y])
        self._waiting.append((pixels.movedim(0, -1).cpu().numpy().copy(), label))
        if len(self._waiting) >= self.chunk:
            self.learn_waiting()

    def learn_many(self, X: Any, y: Any) -> None:
        """A batch `[N, H, W, 3]` or a list of images, as one step; those that wait are learnt before."""
        images, labels = self.learner.backbone.read(X), read_labels(y)
        if len(images) == len(labels):  # otherwise the learner says what is wrong, and nothing else is changed
            self.learn_waiting()
        self.learner.learn(images, labels)

    def learn_waiting(self) -> None:
        """Learns from images that wait, as at the end of a stream; if the step fails they are dropped."""
        chunk, self._waiting = self._waiting, []
        if chunk:
            self.learner.learn([image for image, _ in chunk], [label for _, label in chunk])

    def predict_proba_one(self, x: Any, **_: Any) -> dict[Label, float]:
        """The softmax of the learner's scores, in the order in which classes were met; empty before the first."""
        [answer] = self.predict_proba_many([x])
        return answer

    def predict_proba_many(self, X: Any) -> list[dict[Label, float]]:
        """The same for each image of a batch."""
        learner = self.learner
        found = ranked(learner.predict(X), learner.classes, max(1, len(learner.classes)))
        shares = [{answer.label: answer.probability for answer in answers} for answers in found]
        return [{label: share[label] for label in learner.classes if label in share} for share in shares]

    def predict_many(self, X: Any) -> list[Label | None]:
        """The label of the highest score of each image, None before anything was learnt."""
        found = ranked(self.learner.predict(X), self.learner.classes)
        return [answers[0].label if answers else None for answers in found]

    def predict_one(self, x: Any, **_: Any) -> Label | None:
        [label] = self.predict_many([x])
        return label
