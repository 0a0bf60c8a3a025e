"""Does a step take longer when more classes are known? Time and memory against the number of classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from prol.backbones import Backbone
from prol.bench.machine import PeakMemory
from prol.bench.subject import Load, Subject, answer_of, free, step_of
from prol.bench.timing import Pace, waiting
from prol.bench.turns import in_a_line, measure, row_of
from prol.learner import Learner

Row = dict[str, Any]

COMPARED_WITH = 100


def growth(
    subject: Subject, backbone: Backbone, classes: Sequence[int], chunk: int, batch: int, pace: Pace
) -> Iterator[Row]:
    """One row for each number of classes, fewest first: a step, a prediction, and the most memory in use meanwhile.

    Every learner is in its second task, with 10 classes of its own or half of all. A row that fails holds the error.
    """
    subject.resolved(chunk)
    for number in sorted(set(classes)):
        free(backbone.device)
        row, load = {"method": subject.name, "classes": number}, Load(number)
        try:
            learner = subject.learner(backbone, chunk)
            load.announce(learner)
        except RuntimeError as error:
            yield row | {"error": in_a_line(error)}
            continue
        yield row | _times(learner, load, chunk, batch, pace)
        del learner


def _times(learner: Learner, load: Load, chunk: int, batch: int, pace: Pace) -> Row:
    device, size = learner.backbone.device, learner.preprocessing.size
    memory = PeakMemory(device)  # from here on: the tables are there, what a step needs is not
    makers = {
        "train": lambda: step_of(learner, load.feed(chunk, size)),
        "predict": lambda: answer_of(learner, load.feed(batch, size)),
    }
    # One after the other, so that a GPU never has to hold what both need at the same time.
    found = {what: measure({what: make}, pace, waiting(device))[what] for what, make in makers.items()}
    for result in found.values():
        if isinstance(result, str):
            return {"error": result}
    row: Row = {what: row_of(found[what], images) for what, images in (("train", chunk), ("predict", batch))}
    return row | {"memory_bytes": memory.read(), "memory": memory.kind}


def with_ratios(rows: Sequence[Row]) -> list[Row]:
    """The rows with their times as multiples of those at 100 classes, or of the first row's where none has 100."""
    timed = [row for row in rows if "error" not in row]
    base = next((row for row in timed if row["classes"] == COMPARED_WITH), timed[0] if timed else None)
    if base is None:
        return list(rows)
    return [
        row
        if "error" in row
        else row | {f"{what}_ratio": row[what]["median"] / base[what]["median"] for what in ("train", "predict")}
        for row in rows
    ]
