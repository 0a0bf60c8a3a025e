"""Predictions as text: a table to read, or JSON and CSV for other programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from prol.ranking import RankedLabel
from prol.report.table import csv_text

RankedImage = tuple[Path, Sequence[RankedLabel]]
"""An image and its predictions, best first."""

_COLUMNS = ("image", "rank", "label", "probability", "score")


def as_json(predicted: Iterable[RankedImage]) -> Iterator[str]:
    """One list; each image as soon as it is predicted, on its own line."""
    before = "[\n"
    for image, predictions in predicted:
        content = {"image": _name(image), "answers": [asdict(prediction) for prediction in predictions]}
        yield before + json.dumps(content)  # escapes whatever a terminal or an encoding cannot show
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def as_csv(predicted: Iterable[RankedImage]) -> Iterator[str]:
    """One line per prediction, below a line of names."""
    yield csv_text([_COLUMNS])
    for image, predictions in predicted:
        for rank, one in enumerate(predictions, start=1):
            yield csv_text([(_name(image), rank, _printable(str(one.label)), one.probability, one.score)])


def as_table(predicted: Iterable[RankedImage]) -> Iterator[str]:
    """Columns of one width, so that all predictions are awaited first."""
    rows = [("image", "label", "probability")]
    for image, predictions in predicted:
        names = [_printable(_name(image))] + [""] * (len(predictions) - 1)
        rows += [
            (name, _printable(str(one.label)), f"{100 * one.probability:.1f} %")
            for name, one in zip(names, predictions, strict=True)
        ]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    for image_name, label, probability in rows if len(rows) > 1 else []:
        yield f"{image_name:<{first}}  {label:<{second}}  {probability:>11}\n"


_Format = Callable[[Iterable[RankedImage]], Iterator[str]]
FORMATS: dict[str, _Format] = {
    "table": as_table,
    "json": as_json,
    "csv": as_csv,
}


def _name(image: Path) -> str:
    """A path as text; bytes in it that are no text are written as escapes."""
    return str(image).encode("utf-8", "backslashreplace").decode("utf-8")


def _printable(text: str) -> str:
    """Class names come from untrusted files: none may move the cursor of a terminal."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
