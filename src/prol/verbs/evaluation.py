"""How well a learner predicts images whose labels are known: accuracy, confusion, calibration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prol.classes import Label
from prol.evaluation.metrics import calibration_error, confidence_bins
from prol.prediction import MOST_PRINTED, data_frame, html_table
from prol.prequential.label_issues import SHARE, LabelIssues
from prol.prequential.learning_curve import LearningCurve
from prol.verbs.chunks import ImageStream, read_batch
from prol.verbs.source import Batch, Source, open_source

if TYPE_CHECKING:
    import pandas

    from prol.learner import Learner

_TEST_BATCH = 64


@dataclass(frozen=True)
class Evaluation:
    """Predictions for test images, counted. Accuracies are in percent.

    `confusion` `[tested, classes]` counts images by their class, in the order of `tested`, and by the class predicted
    for them, in that of `classes`, which are those the learner knows. `bins` `[15, 3]` are the predictions by
    confidence: images, right ones, and summed confidence.

    >>> Evaluation(("cat", "eel", "dog"), ("cat", "dog"), np.array([[3, 1], [1, 0], [0, 5]]), np.zeros((15, 3)))
    accuracy 80.0 % on 10 images of 3 classes
    class  images  accuracy  most often taken for
    eel         1     0.0 %  cat (1)
    cat         4    75.0 %  dog (1)
    1 class without an error
    1 image is of a class that was never learnt: eel
    """

    tested: tuple[Label, ...]
    classes: tuple[Label, ...]
    confusion: NDArray[np.int64]
    bins: NDArray[np.float64]

    @property
    def images(self) -> int:
        return int(self.confusion.sum())

    @property
    def accuracy(self) -> float:
        return 100.0 * int(self._right().sum()) / self.images

    @property
    def per_class(self) -> dict[Label, float]:
        """The accuracy on the images of each class."""
        shares = 100.0 * self._right() / self.confusion.sum(1)
        return dict(zip(self.tested, shares.tolist(), strict=True))

    @property
    def calibration_error(self) -> float | None:
        """Expected calibration error in points: mean distance of confidence from accuracy, over 15 bins."""
        return calibration_error(self.bins)

    def _right(self) -> NDArray[np.int64]:
        """Images of each class that were predicted rightly; none of a class that is not known."""
        column = {label: place for place, label in enumerate(self.classes)}
        found = [self.confusion[row, column[label]] if label in column else 0 for row, label in enumerate(self.tested)]
        return np.array(found, dtype=np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for JSON; classes are in lists because numbers cannot be keys there."""
        return {
            "images": self.images,
            "accuracy": self.accuracy,
            "calibration_error": self.calibration_error,
            "tested": list(self.tested),
            "accuracy_per_class": list(self.per_class.values()),
            "classes": list(self.classes),
            "confusion": self.confusion.tolist(),
        }

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each class: images, accuracy, and the class it is most often taken for; needs pandas."""
        return data_frame({name: [row[place] for row in self._rows()] for place, name in enumerate(_COLUMNS)})

    def _rows(self) -> list[tuple[Label, int, float, Label | None, int]]:
        """Class, images, accuracy, the class most often predicted in its place, and how often."""
        rows: list[tuple[Label, int, float, Label | None, int]] = []
        for label, counts, share in zip(self.tested, self.confusion, self.per_class.values(), strict=True):
            wrong = [0 if name == label else int(count) for name, count in zip(self.classes, counts, strict=True)]
            most = max(wrong, default=0)
            rows.append((label, int(counts.sum()), share, self.classes[wrong.index(most)] if most else None, most))
        return rows

    def _headline(self) -> str:
        error = self.calibration_error
        calibrated = "" if error is None else f"; calibration error {error:.1f} points"
        classes = f"{len(self.tested):,} class{'es' * (len(self.tested) > 1)}"
        images = f"{self.images:,} image{'s' * (self.images > 1)}"
        return f"accuracy {self.accuracy:.1f} % on {images} of {classes}{calibrated}"

    def _cells(self) -> list[list[str]]:
        """Titles, and the cells of the least accurate classes among those with an error."""
        cells = [["class", "images", "accuracy", "most often taken for"]]
        for label, images, share, other, often in self._worst()[:MOST_PRINTED]:
            cells.append([str(label), f"{images:,}", f"{share:.1f} %", f"{other} ({often:,})" if often else ""])
        return cells if len(cells) > 1 else []

    def _worst(self) -> list[tuple[Label, int, float, Label | None, int]]:
        return sorted((row for row in self._rows() if row[2] < 100), key=lambda row: row[2])

    def _remarks(self) -> list[str]:
        """What the table leaves out, and what its reader should know."""
        wrong = len(self._worst())
        left, without = wrong - MOST_PRINTED, len(self.tested) - wrong
        found = [f"and {left:,} classes of higher accuracy: to_pandas() has all"] if left > 0 else []
        if without:
            found.append(f"{without:,} class{'es' * (without > 1)} without an error")
        new = [label for label in self.tested if label not in self.classes]
        if new:
            count = int(self.confusion[[label in new for label in self.tested]].sum())
            listed = ", ".join(map(str, new[:MOST_PRINTED])) + (" and others" if len(new) > MOST_PRINTED else "")
            images = f"{count:,} images are" if count > 1 else "1 image is"
            kind = "classes that were" if len(new) > 1 else "a class that was"
            found.append(f"{images} of {kind} never learnt: {listed}")
        return found

    def __repr__(self) -> str:
        cells = self._cells()
        widths = [max((len(row[place]) for row in cells), default=0) for place in range(3)]
        lines = [
            f"{row[0]:{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip() for row in cells
        ]
        return "\n".join([self._headline(), *lines, *self._remarks()])

    def _repr_html_(self) -> str:
        remarks = "".join(f"<p>{escape(remark)}</p>" for remark in self._remarks())
        return f"<p>{self._headline()}</p>{html_table(self._cells())}{remarks}"


_COLUMNS = ("class", "images", "accuracy", "taken_for", "times")


def evaluate(learner: Learner, data: Any) -> Evaluation:
    """Predicts labelled images and compares.

    Args:
        learner: what predicts; it does not change.
        data: what `prol.stream` returned, of which the test images are used, or what it takes: the test images of that,
            or all images where there are none set apart for testing.
    """
    tested: dict[Label, int] = {}
    pairs: list[tuple[int, int]] = []
    confidence: list[float] = []
    classes = tuple(learner.classes)
    for images, labels in _batches(data):
        scores = learner.predict(images) if classes else None
        if scores is None or not bool(scores.isfinite().any()):
            raise ValueError("nothing was learnt yet, so there is nothing to evaluate: call learn first")
        confidence += learner.probable(scores).amax(1).tolist()
        rows = [tested.setdefault(label, len(tested)) for label in labels]
        pairs += zip(rows, scores.argmax(1).tolist(), strict=True)
    if not pairs:
        raise ValueError("there are no test images: stream with test_share=0.2, or give others to evaluate")
    true, predicted = np.array(pairs).T
    confusion = np.zeros((len(tested), len(classes)), dtype=np.int64)
    np.add.at(confusion, (true, predicted), 1)
    names = list(tested)
    right = np.array([names[row] == classes[column] for row, column in pairs])
    return Evaluation(tuple(names), classes, confusion, confidence_bins(np.array(confidence), right))


def _batches(data: Any) -> Iterator[Batch]:
    if isinstance(data, ImageStream):
        return data.held_out()
    opened = open_source(data, seed=0, test_share=0.0)
    if not isinstance(opened, Source):
        return map(read_batch, opened)
    split = opened.test if len(opened.test.labels) else opened.train
    return opened.batches(split, np.arange(len(split.labels)), _TEST_BATCH)


def label_issues(learner: Learner, share: float = SHARE) -> LabelIssues:
    """What `learner.label_issues` returns."""
    return LabelIssues.of(learner.stored.saved_values(), learner.classes, share)


def learning_curve(learner: Learner) -> LearningCurve:
    """What `learner.learning_curve` returns."""
    return LearningCurve.of(learner.prequential, learner.classes, learner.error_slope)
