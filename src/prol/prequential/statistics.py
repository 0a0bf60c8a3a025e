"""What is stored of predictions made before learning: sums per class and, if wanted, the ids of doubtful images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from prol.classes import Label, read_labels, require_text
from prol.state import State

ENOUGH = 10
"""Images of a class that must be known before labels of that class are judged."""
BINS = 24
"""Two for each doubling of the images of a class; the last one has no end."""
SUMS = 4
RECORDED = 1000
"""Ids that are recorded unless another number is given."""
SLOPE = 0.3, 0.15
"""Mean and standard deviation of β where the error falls as n^-β with n images per class, of methods that do not say
otherwise: before there is evidence."""
LISTS = ("ids", "labels", "predicted", "probabilities", "others")
"""Of each recorded image: id, row of its label, row of the most probable other class, and both probabilities."""


Record = tuple[Label, Label, Label, float, float]
"""A recorded image outside of its learner: the same with names instead of rows."""


class Predicted(NamedTuple):
    """Predictions for a chunk of N images before it is learnt, each `[N]`."""

    rows: Tensor
    """The row of the label; -1 for a class that was not known."""
    probability: Tensor
    """That of the label."""
    other: Tensor
    """The row of the most probable other class."""
    other_probability: Tensor
    known: int
    """Classes of which something was learnt by then."""

    @classmethod
    def of(cls, probabilities: Tensor, rows: Tensor) -> Predicted:
        """From probabilities `[N, C]` of images whose labels have the rows `[N]`."""
        likely, known = probabilities.double().cpu(), (rows >= 0).unsqueeze(1)
        own = rows.clamp(min=0).unsqueeze(1)
        label = likely.gather(1, own).masked_fill(~known, 0.0)
        others = torch.where(known, likely.scatter(1, own, -1.0), likely)
        best, other = others.max(1)
        return cls(rows, label.squeeze(1), other, best.clamp(min=0.0), int((likely > 0).any(0).sum()))


class Prequential:
    """Sums over predictions made before learning: per class, by how many of its images were known at that time.

    `bins` `[C, 24, 4]` are images, right predictions, summed confidence, and the summed number of classes known;
    `images` `[C]` are those learnt of each class. `judged` images were of classes of which at least 10 were known. Of
    these, at most `capacity` with the least probable labels are recorded by id.
    """

    def __init__(self, state: State) -> None:
        self._state = state.scope("prequential")
        self.images = self._state.table("images", dtype=torch.float64, kind="statistic", writes="chunk")
        self.bins = self._state.table("bins", (BINS, SUMS), dtype=torch.float64, kind="statistic", writes="chunk")
        self.judged, self.capacity = 0, 0
        self.ids: list[Label] = []
        self.labels: list[int] = []
        self.predicted: list[int] = []
        self.probabilities: list[float] = []
        self.others: list[float] = []
        self._state.value("judged", self, merge="sum")
        self._state.value("capacity", self)
        for name in LISTS:
            self._state.value(name, self, is_row=name in ("labels", "predicted"))
        self._state.on_remove(_without_class)
        self._state.on_combine(_with_classes_merged)

    def begin(self, classes: int, counts: Tensor | None) -> None:
        """Adds the rows of classes that are known already, of which so many images were learnt."""
        for table in (self.images, self.bins):
            table.grow(classes)
        if counts is not None:
            self.images.rows.copy_(counts)

    def record_at_most(self, capacity: int) -> None:
        """From now on the ids of at most so many images are recorded."""
        self.capacity = capacity
        self.set_records(self._records())

    def drop(self) -> None:
        self._state.drop()

    def add(self, rows: Tensor, predicted: Predicted | None, ids: Sequence[Label]) -> None:
        """A chunk of class rows `[N]` was learnt, which had been predicted, if any class was known."""
        if predicted is not None:
            known = (predicted.rows >= 0).nonzero().flatten()
            own = predicted.rows[known]
            before = self.images.rows.cpu()[own]
            label, other = predicted.probability[known], predicted.other_probability[known]
            seen = before > 0
            cells = BINS * own[seen] + torch.tensor([bin_of(count) for count in before[seen].tolist()]).long()
            ones = torch.ones_like(label)
            values = torch.stack(
                [ones, (label > other).double(), torch.maximum(label, other), predicted.known * ones], 1
            )
            sums = self.bins.rows.view(-1, SUMS)
            sums.index_add_(0, cells.to(sums.device), values[seen].to(sums))
            judged = before >= ENOUGH
            self.judged += int(judged.sum())
            if self.capacity:
                self._record(known[judged].tolist(), predicted, ids)
        self.images.add(rows.to(self.images.rows.device), torch.ones(len(rows), device=self.images.rows.device))

    def _record(self, places: Sequence[int], predicted: Predicted, ids: Sequence[Label]) -> None:
        columns = [ids, *(tensor.tolist() for tensor in (predicted.rows, predicted.other))]
        columns += [predicted.probability.tolist(), predicted.other_probability.tolist()]
        self.set_records([*self._records(), *(tuple(column[place] for column in columns) for place in places)])

    def _records(self) -> list[tuple[Any, ...]]:
        return list(zip(*(getattr(self, name) for name in LISTS), strict=True))

    def set_records(self, records: Iterable[tuple[Any, ...]]) -> None:
        """Stores those of these records whose labels are least probable, in that order."""
        kept = _least_probable(records, self.capacity)
        for place, name in enumerate(LISTS):
            setattr(self, name, [record[place] for record in kept])

    def forget(self, row: int) -> None:
        """Removes the records of a class that is about to be removed."""
        self.set_records([record for record in self._records() if row not in record[1:3]])

    def named(self, classes: Sequence[Label]) -> tuple[Record, ...]:
        """The records with names of classes instead of their rows."""
        return tuple((name, classes[row], classes[other], p, q) for name, row, other, p, q in self._records())

    def require_consistent(self, classes: int) -> None:
        """ValueError where lists that were loaded do not fit each other or so many classes."""
        rows, likely = [*self.labels, *self.predicted], [*self.probabilities, *self.others]
        fits = len({len(getattr(self, name)) for name in LISTS}) == 1 and len(self.ids) <= self.capacity
        named = all(isinstance(name, str | int) and not isinstance(name, bool) for name in self.ids)
        if not (fits and named and all(0 <= row < classes for row in rows) and all(0 <= p <= 1 for p in likely)):
            raise ValueError("the ids recorded of images, their classes and probabilities do not fit each other")

    def notes(self) -> list[str]:
        """What removing a class, or unlearning images, leaves here."""
        return [f"the ids of {len(self.ids)} images with improbable labels are recorded"] if self.ids else []


def ids_of(images: Any, ids: Any, count: int, first: int, statistics: Prequential | None) -> list[Label]:
    """Of each of `count` images the id given, its path, or its number in the stream, which begins with `first`."""
    recorded = statistics is not None and statistics.capacity > 0
    if ids is None:
        paths = [image if isinstance(image, str | Path) else None for image in images] if recorded else []
        return [first + place if path is None else str(path) for place, path in enumerate(paths)]
    if not recorded:
        raise ValueError("ids are not recorded: call enable_prequential(record_ids=True) first, or give none")
    found = read_labels([str(one) if isinstance(one, Path) else one for one in ids])
    require_text(found)
    if len(found) != count:
        raise ValueError(f"{count} images but {len(found)} ids: each image needs one id")
    return found


def bin_of(images: float) -> int:
    """The bin of predictions made while so many images of a class were known.

    >>> [bin_of(images) for images in (1, 2, 3, 4, 6, 8, 12, 10_000)]
    [0, 2, 3, 4, 5, 6, 7, 23]
    """
    return min(BINS - 1, int(2 * math.log2(images)))


def put_records(values: dict[str, Any], records: Sequence[Record], classes: Sequence[Label]) -> None:
    """Puts the records of several learners, who know these classes between them, into the values of a state."""
    found = values.get("prequential")
    if found is not None:
        row_of = {name: row for row, name in enumerate(classes)}
        rows = [(name, row_of[label], row_of[other], p, q) for name, label, other, p, q in records]
        kept = _least_probable(rows, found["capacity"])
        found |= {name: [record[place] for record in kept] for place, name in enumerate(LISTS)}


def _least_probable(records: Iterable[tuple[Any, ...]], capacity: int) -> list[tuple[Any, ...]]:
    return sorted(records, key=lambda record: record[LISTS.index("probabilities")])[:capacity]


def _without_class(tensors: Any, values: dict[str, Any], row: int) -> str:  # noqa: ARG001
    """Removes records whose label, or most probable other class, is removed; rows behind it move later."""
    found = values.get("prequential")
    if found is not None:
        pairs = enumerate(zip(found["labels"], found["predicted"], strict=True))
        kept = [place for place, rows in pairs if row not in rows]
        found |= {name: [found[name][place] for place in kept] for name in LISTS}
    return ""


def _with_classes_merged(tensors: Any, values: dict[str, Any], source: int, into: int) -> None:  # noqa: ARG001
    """Records of the class that goes become those of the other; one that names both is a contradiction no more."""
    found = values.get("prequential")
    if found is not None:
        for name in ("labels", "predicted"):
            found[name] = [into if row == source else row for row in found[name]]
        kept = [place for place in range(len(found["ids"])) if found["labels"][place] != found["predicted"][place]]
        found |= {name: [found[name][place] for place in kept] for name in LISTS}
