"""Predictions for any number of images, batch by batch: scores, familiarity and encodings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor

from prol.backbones.base import Augment, Backbone, InputRange, Pixels
from prol.calibration import Observation, Prior, observe, probabilities
from prol.classes import Label
from prol.model import Model
from prol.options import CropShare, Options
from prol.prequential.statistics import Predicted

if TYPE_CHECKING:
    import pandas

    from prol import Evaluation, LabelIssues, LearningCurve
    from prol.learner import Learner

MOST_PRINTED = 20
"""Images of a classification that are printed."""
SMALL_BATCH = 16
"""Images up to which a batch is never filled up."""


def whole_batch(count: int, most: int) -> int:
    """The batch size at which `count` images, at most `most`, pass through a GPU: few sizes, each compiled once.

    Small batches, which may be latency-critical, pass as they are.

    >>> [whole_batch(count, most=256) for count in (1, 10, 16, 17, 50, 200)]
    [1, 10, 16, 32, 64, 256]
    """
    return count if count <= SMALL_BATCH else min(most, 1 << (count - 1).bit_length())


def batches(pixels: Pixels, encoded: Tensor | None, size: int, filled: bool) -> Iterator[tuple[Pixels, Tensor | None]]:
    """Images and their encodings, if known, `size` at a time; `filled` repeats the last one up to a usual batch size.

    `pixels` may be empty where encodings are given.
    """
    count = len(pixels) if encoded is None else len(encoded)
    for start in range(0, count, size):
        left = count - start
        missing = max(0, (size if count > size else whole_batch(left, size)) - left) if filled else 0
        part = pixels[start : start + size]
        images = _filled(part, missing) if isinstance(part, Tensor) else part + part[-1:] * missing
        yield images, None if encoded is None else _filled(encoded[start : start + size], missing)


def _filled(rows: Tensor, missing: int) -> Tensor:
    return torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) if missing and len(rows) else rows


def _joined(parts: list[Tensor | None], count: int) -> Tensor | None:
    """Familiarity of the first `count` images of all batches; None where one batch has none, or nothing was learnt."""
    known = [part.float().cpu() for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    found = torch.cat([torch.zeros(0), *known])[:count]
    return None if count and bool(found.isneginf().all()) else found


@dataclass(frozen=True)
class Classification:
    """What a learner says about N images.

    `labels` has the most probable class of each. `probabilities` `[N, C]`, in the order of `learner.classes`, are
    calibrated: of predictions with 80 %, about 80 in 100 are right, for images like those learnt. `unknown` `[N]` is,
    for each image, the share of known images that were more familiar; above 0.95 it is probably none of the classes.
    None where the method has no familiarity or too few images were observed.

    >>> import torch
    >>> Classification(["cat", "eel"], torch.tensor([[0.9, 0.1], [0.3, 0.7]]), torch.tensor([0.2, 0.99]))
         probability  unknown
    cat       90.0 %     0.20
    eel       70.0 %     0.99
    """

    labels: list[Label]
    probabilities: Tensor
    unknown: Tensor | None

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        titles, *rows = self._rows()
        width = max((len(row[0]) for row in rows), default=0)
        lines = ["  ".join([name.ljust(width), *cells]) for name, *cells in [titles, *rows]]
        more = len(self) - len(rows)
        return "\n".join(lines + [f"... and {more:,} more"] * (more > 0)) if rows else "no images"

    def _repr_html_(self) -> str:
        cells = self._rows()
        left = len(self) - len(cells) + 1
        return (html_table(cells) + f"<p>... and {left:,} more</p>" * (left > 0)) if len(self) else "<p>no images</p>"

    def _rows(self) -> list[list[str]]:
        """Titles, and the cells of the first images."""
        columns = self.to_dict()
        labels = [str(label) for label in columns["label"][:MOST_PRINTED]]
        rows = [labels, [f"{100 * one:9.1f} %" for one in columns["probability"][:MOST_PRINTED]]]
        titles = ["", "probability"]
        if "unknown" in columns:
            rows.append([f"{one:7.2f}" for one in columns["unknown"][:MOST_PRINTED]])
            titles.append("unknown")
        return [titles, *map(list, zip(*rows, strict=True))]

    def to_dict(self) -> dict[str, list[Any]]:
        """A list for each column, one value per image: label, its probability, and unknown where that is known."""
        best = self.probabilities.amax(dim=1).tolist() if len(self) else []
        columns: dict[str, list[Any]] = {"label": list(self.labels), "probability": best}
        return columns if self.unknown is None else columns | {"unknown": self.unknown.tolist()}

    def to_pandas(self) -> pandas.DataFrame:
        """The columns of `to_dict` as a data frame; needs pandas."""
        return data_frame(self.to_dict())


def html_table(cells: Sequence[Sequence[str]]) -> str:
    """A table of which the first row holds the titles; nothing where there is no row.

    >>> html_table([["class"], ["<b>"]])
    '<table><thead><tr><th>class</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    if not cells:
        return ""

    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell.strip())}</{tag}>" for cell in cells) + "</tr>"

    rows = "".join(row(one, "td") for one in cells[1:])
    return f"<table><thead>{row(cells[0], 'th')}</thead><tbody>{rows}</tbody></table>"


def data_frame(columns: Mapping[str, Sequence[Any]]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError:
        raise ImportError("to_pandas needs pandas: pip install pandas, or use to_dict()") from None
    return pandas.DataFrame(columns)


@dataclass(frozen=True)
class InputOptions(Options):
    """How images become the network's input."""

    augment: Augment = "none"
    """Random crops and flips of training images (crop_flip), or none."""
    input_range: InputRange = "backbone"
    """Values fed to the network: as the backbone was trained, plain [0, 1] (unit), or [-1, 1] (symmetric)."""
    crop_pct: CropShare | None = None
    """Share of the shorter side that the evaluation crop covers; the backbone's own by default."""


class Predictor(Model):
    """A model that predicts: it encodes images, and computes scores and familiarity from encodings."""

    encoding: ClassVar[Literal["none", "query", "all"]] = "all"
    """What `encode` computes: all that scores need, a part of it (the image is needed again), or nothing."""
    frozen: bool = True
    """Whether learning leaves encodings as they are, so that they may be stored and used again."""

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        self.preprocessing = backbone.preprocessing
        if hasattr(options, "input_range"):
            self.preprocessing = backbone.preprocessing.overridden(options.input_range, options.crop_pct)
        self.predict_batch = 256 if backbone.device.type == "cuda" else 64
        self.look: Callable[[Tensor], Tensor] = backbone.frozen_pass(backbone.features)
        super().__init__(backbone, options, seed)

    # What a method implements.

    def encode(self, inputs: Tensor) -> Tensor:
        """What scores are computed from, `[B, ...]`, given inputs `[B, 3, size, size]`."""
        return self.look(inputs)

    def score(self, encoded: Tensor) -> Tensor:
        """Scores `[B, C]`, -inf for a class of which nothing was learnt; draws no random numbers."""
        raise NotImplementedError

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:  # noqa: ARG002
        """How much each encoded image is like those learnt, `[B]`; None where the method cannot say.

        Minus infinity where nothing was learnt, which `familiarity` returns as None.
        """
        return None

    # One batch, for methods that need more than its encoding.

    def evaluation_input(self, pixels: Pixels) -> Tensor:
        return self.backbone.inputs(pixels, self.preprocessing)

    @property
    def augmentation(self) -> torch.Generator | None:
        """What draws crops and flips of training images; None where the whole images are learnt."""
        return None if self.options.augment == "none" else self.random

    def training_input(self, pixels: Pixels) -> Tensor:
        return self.backbone.inputs(pixels, self.preprocessing, self.augmentation)

    def encoded(self, pixels: Pixels) -> Tensor:
        return self.encode(self.evaluation_input(pixels))

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        """Scores `[B, C]` of one batch, from its encoding where that is known."""
        return self.score(self.encoded(pixels) if encoded is None else encoded)

    def familiarity_of(self, pixels: Pixels, encoded: Tensor | None) -> Tensor | None:
        """Familiarity `[B]` of one batch, from its encoding where that is known."""
        if self.encoding == "none":
            return None
        return self.score_familiarity(self.encoded(pixels) if encoded is None else encoded)

    # Any number of images.

    @torch.no_grad()
    def predict(self, images: Any) -> Tensor:
        """Scores, float32 `[N, C]`, one column for each of `classes`; `[N, 0]` before any class is known."""
        return self._predict_pixels(self.backbone.read(images))

    @torch.no_grad()
    def familiarity(self, images: Any) -> Tensor | None:
        """How much images are like those learnt, float32 `[N]`; None where the method cannot say.

        Values compare only with others of the same moment: `classify` calibrates them.
        """
        pixels = self.backbone.read(images)
        self.flush()
        if not self.classes:
            return None
        return _joined([self.familiarity_of(batch, None) for batch, _ in self._batches(pixels)], len(pixels))

    @torch.no_grad()
    def predict_with_familiarity(self, images: Any) -> tuple[Tensor, Tensor | None]:
        """What `predict` and `familiarity` return, from one encoding."""
        pixels = self.backbone.read(images)
        if not self.classes or not len(pixels):
            return self._predict_pixels(pixels), self.familiarity(images)
        self.flush()
        scores, found = [], []
        for batch, _ in self._batches(pixels):
            encoded = None if self.encoding == "none" else self.encoded(batch)
            scores.append(self.scores(batch, encoded).float().cpu())
            found.append(self.familiarity_of(batch, encoded))
        return torch.cat(scores)[: len(pixels)], _joined(found, len(pixels))

    def predict_ahead(self, pixels: Pixels) -> Tensor:
        """Probabilities `[N, C]` of a chunk that is about to be learnt; a method may solve less often for them."""
        return self.probable(self.predict(pixels))

    def predict_chunk(self, pixels: Pixels, names: Sequence[Label]) -> Predicted | None:
        """What is predicted for a chunk that is about to be learnt, beside its labels; None where nothing can be."""
        self.flush()  # an error of an earlier update is no error of this prediction
        try:
            likely = self.predict_ahead(pixels)
        except (ValueError, RuntimeError):  # as in `foresee`: if the images are at fault, learning them says so
            return None
        if likely.shape[1] < 2:
            return None
        return Predicted.of(likely, torch.tensor([self.row_of.get(name, -1) for name in names]))

    def follow(self, earlier: Self) -> bool:  # noqa: ARG002
        """Takes over what an earlier state of this learner has solved, where that makes hardly a difference.

        Predictions then need milliseconds where solving anew takes longer, and are those of `predict` up to a small
        difference, until the state changes. False where nothing is taken over.
        """
        return False

    def classify(self, images: Any) -> Classification:
        """Labels with calibrated probabilities, and how likely each image is of none of the known classes."""
        scores, familiarity = self.predict_with_familiarity(images)
        if not self.classes or (len(scores) and not bool(scores.isfinite().any())):
            raise ValueError("nothing was learnt yet, so there is nothing to predict: call learn first")
        unknown = None if familiarity is None else self.calibration.unknown(familiarity)
        return Classification([self.classes[row] for row in scores.argmax(1).tolist()], self.probable(scores), unknown)

    def evaluate(self, data: Any) -> Evaluation:
        """Accuracy, confusion and calibration on what `prol.stream` returned or takes: its test images, or all."""
        import prol

        return prol.evaluate(cast("Learner", self), data)

    def label_issues(self, share: float = 0.2) -> LabelIssues:
        """Images whose labels are improbable, by id, among the least probable `share` of those that were judged.

        ValueError without `enable_prequential(record_ids=True)`. See `prol.prequential.LabelIssues`.
        """
        import prol

        return prol.label_issues(cast("Learner", self), share)

    def learning_curve(self) -> LearningCurve:
        """Accuracy by images per class, of predictions made before learning, and what more images would bring.

        ValueError without `enable_prequential()`. See `prol.prequential.LearningCurve`.
        """
        import prol

        return prol.learning_curve(cast("Learner", self))

    def probable(self, scores: Tensor) -> Tensor:
        """Probabilities `[N, C]`, float64, of scores that `predict` returned; 0 where nothing was learnt of a class."""
        if not self.classes:
            return scores.double()
        return probabilities(scores, self.calibration.temperature(self.prior_temperature(), scores))

    def prior_temperatures(self) -> Tensor | None:
        """What scores for images of each class are divided by, `[C]`, before predictions were compared with labels.

        0 for a class of which nothing was learnt; None for the spread of the scores.
        """
        return None

    def prior_temperature(self) -> Prior | None:
        """The same for an image of which the class is not known: the mean over classes that were learnt."""
        found = self.prior_temperatures()
        if found is None:
            return None
        return Prior(float(found[found > 0].mean()) if bool(found.any()) else 1.0)

    def foresee(self, pixels: Pixels, names: list[Label]) -> Observation | None:
        """What predictions for a chunk show before it is learnt; None where they fail: it is learnt all the same."""
        rows = torch.tensor([self.row_of.get(name, -1) for name in names])
        if len(self.classes) < 2 or not bool((rows >= 0).any()):
            return None  # nothing to compare: no prediction is computed, which a method may have to solve for
        self.flush()  # an error of an earlier update is no error of this prediction
        try:
            scores, familiarity = self.predict_with_familiarity(pixels)
            usual = self.calibration.usual_spread()
            return observe(scores, rows, rows >= 0, self.prior_temperatures(), familiarity, usual)
        except (ValueError, RuntimeError):
            return None

    def hindsight(self) -> Observation | None:
        """What can be said, without storing it, of the chunk just learnt as if it were not; None where nothing can."""
        return None

    @torch.no_grad()
    def encode_images(self, images: Any) -> Tensor:
        """What `predict_encoded` takes, `[N, ...]`; valid for as long as `frozen` is true."""
        pixels = self.backbone.read(images)
        if self.encoding == "none":
            raise ValueError(f"everything {self.name} computes from an image changes with learning")
        return torch.cat([self.encoded(batch) for batch, _ in self._batches(pixels)])[: len(pixels)]

    @torch.no_grad()
    def predict_encoded(self, encoded: Tensor, images: Any = None) -> Tensor:
        """What `predict` returns, from what `encode_images` returned; images are needed where `encoding` is "query"."""
        pixels: Pixels = [] if self.encoding == "all" and images is None else self.backbone.read(images)
        if len(pixels) != len(encoded) and (len(pixels) or self.encoding != "all"):
            raise ValueError(f"{len(pixels)} images but {len(encoded)} encodings: each image needs its own")
        return self._predict_pixels(pixels, encoded.to(self.backbone.device))

    def _predict_pixels(self, pixels: Pixels, encoded: Tensor | None = None) -> Tensor:
        self.flush()
        count = len(pixels) if encoded is None else len(encoded)
        if not self.classes or not count:
            return torch.zeros(count, len(self.classes))
        scores = [self.scores(*batch).float().cpu() for batch in self._batches(pixels, encoded)]
        return torch.cat(scores)[:count]

    def _batches(self, pixels: Pixels, encoded: Tensor | None = None) -> Iterator[tuple[Pixels, Tensor | None]]:
        filled = self.backbone.device.type == "cuda" and "batch_independence" not in self.exemptions()
        return batches(pixels, encoded, self.predict_batch, filled)
