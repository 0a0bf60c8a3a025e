"""Answers as text: a table to read, or JSON and CSV for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from prol.answers import Answer

Answered = tuple[Path, Sequence[Answer]]
"""An image, and the answers to it, best first."""

_COLUMNS = ("image", "rank", "label", "probability", "score")


def as_json(answered: Iterable[Answered]) -> Iterator[str]:
    """One list; each image as soon as it is answered, on a line of its own."""
    before = "[\n"
    for image, answers in answered:
        content = {"image": _name(image), "answers": [asdict(answer) for answer in answers]}
        yield before + json.dumps(content)  # escapes whatever a terminal or an encoding would stumble over
        before = ",\n"
    yield "[]\n" if before == "[\n" else "\n]\n"


def as_csv(answered: Iterable[Answered]) -> Iterator[str]:
    """A line an answer, below a line of names."""
    yield _csv_line(_COLUMNS)
    for image, answers in answered:
        for rank, answer in enumerate(answers, start=1):
            yield _csv_line((_name(image), rank, _printable(str(answer.label)), answer.probability, answer.score))


def as_table(answered: Iterable[Answered]) -> Iterator[str]:
    """Columns of one width, so all answers are awaited first."""
    rows = [("image", "label", "probability")]
    for image, answers in answered:
        names = [_printable(_name(image))] + [""] * (len(answers) - 1)
        rows += [
            (name, _printable(str(answer.label)), f"{100 * answer.probability:.1f} %")
            for name, answer in zip(names, answers, strict=True)
        ]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    for image_name, label, probability in rows if len(rows) > 1 else []:
        yield f"{image_name:<{first}}  {label:<{second}}  {probability:>11}\n"


FORMATS: dict[str, Callable[[Iterable[Answered]], Iterator[str]]] = {"table": as_table, "json": as_json, "csv": as_csv}


def answer_format(name: str) -> Callable[[Iterable[Answered]], Iterator[str]]:
    """The function that writes a format."""
    if name not in FORMATS:
        raise ValueError(f"format {name!r} is not known: use one of {', '.join(FORMATS)}")
    return FORMATS[name]


def _csv_line(values: Sequence[object]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(values)
    return line.getvalue()


def _name(image: Path) -> str:
    """A path as text; bytes in it that are no text are written as escapes."""
    return str(image).encode("utf-8", "backslashreplace").decode("utf-8")


def _printable(text: str) -> str:
    """Class names come from strangers' files: none may move the cursor of a terminal."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
