"""Tables of how time grows: with the number of images, and from task to task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from statistics import fmean

from prol.data.builtin import TRAIN_SIZES
from prol.paper.grid import Outcome
from prol.paper.printed import PrintedTable, read_printed
from prol.paper.scale import CHUNK
from prol.paper.tables import joined_row, per_task_table
from prol.paper.timing_tables import meaning, timing_of
from prol.report.comparison import Spread
from prol.report.sheet import Fit, Pair, SheetTable
from prol.runfiles import RunFiles

READY = 2
"""Warm-up tasks: a GPU compiles, and the first task trains more parts."""


def complexity_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Seconds of learning against the number of images, with and without warm-up, and per chunk by task."""
    title = "Seconds of learning against the number of images"
    notes = ("The paper derives O(N) and prints no times for it.", *meaning(outcomes))
    tables = [growth_table("complexity-images", title, outcomes, _all, notes)]
    runs = [run for outcome in outcomes for run in outcome.runs]
    if runs and all(len(timing_of(run)["tasks"]) > READY for run in runs):
        notes = ("The same runs without the two tasks in which a learner gets ready.",)
        tables.append(growth_table("complexity-later", f"{title}, from the third task on", outcomes, _later, notes))
    settings = [outcome.setting for outcome in outcomes if outcome.setting is not None]
    return [*tables, chunk_table([outcome for outcome in outcomes if settings and outcome.setting == max(settings)])]


def growth_table(
    name: str,
    title: str,
    outcomes: Sequence[Outcome],
    measure: Callable[[RunFiles], tuple[int, float]],
    notes: tuple[str, ...],
) -> SheetTable:
    """A column for each number of images; `measure` returns a run's images and seconds."""
    images = {outcome.setting: measure(run)[0] for outcome in outcomes for run in outcome.runs}
    known = sorted(setting for setting in images if setting is not None)
    rows = []
    for row in dict.fromkeys(outcome.row for outcome in outcomes):
        own = {outcome.setting: outcome for outcome in outcomes if outcome.row == row}
        seconds = [[measure(run)[1] for run in own[one].runs] if one in own else [] for one in known]
        points = [(float(images[one]), value) for one, values in zip(known, seconds, strict=True) for value in values]
        pairs = [Pair(Spread.of(values) if values else None) for values in seconds]
        fit = Fit.through([x for x, _ in points], [y for _, y in points])
        rows.append(replace(joined_row(row, list(own.values()), pairs), fit=fit))
    return SheetTable(
        name=name,
        title=title,
        label="",
        columns=tuple(f"{images[one]:,} images" for one in known),
        rows=tuple(rows),
        figure="fit",
        x=tuple(float(images[one]) for one in known),
        x_title="training images",
        y_title="seconds of learning",
        fit="s an image",
        notes=notes,
    )


def _all(run: RunFiles) -> tuple[int, float]:
    return run.config["dataset"]["train_images"], float(timing_of(run)["train_seconds"])


def _later(run: RunFiles) -> tuple[int, float]:
    tasks = timing_of(run)["tasks"][READY:]
    return sum(task["train_images"] for task in tasks), sum(float(task["train_seconds"]) for task in tasks)


def chunk_table(outcomes: Sequence[Outcome]) -> SheetTable:
    """Seconds per chunk in each task, and a line through them: its slope is what a further task adds."""
    table = per_task_table(
        "complexity-chunks",
        "Seconds of a chunk in each task (the paper's: training time by chunks of ImageNet-R)",
        _by_chunks(read_printed("training_time_imagenet_r")),
        outcomes,
        seconds_of_chunks,
        "seconds a chunk",
        digits=4,
    )
    rows = []
    for row in table.rows:
        means = [one.ours.mean for one in row.pairs[:-1] if one.ours]
        rows.append(replace(row, fit=Fit.through(list(range(READY + 1, len(means) + 1)), means[READY:])))
    note = "The line is through the third task and later ones: in the first two everything gets ready."
    return replace(table, rows=tuple(rows), fit="s a task", x_title="task", notes=(note,))


def seconds_of_chunks(run: RunFiles) -> list[float | None]:
    """Mean seconds per chunk, by task."""
    chunk = run.config["protocol"]["chunk"]
    return [
        task["train_seconds"] / ceil(task["train_images"] / chunk) if task["train_images"] else None
        for task in timing_of(run)["tasks"]
    ]


def _by_chunks(printed: PrintedTable) -> PrintedTable:
    chunks = [ceil(size / CHUNK) for size in TRAIN_SIZES]
    rows: dict[str, tuple[float | None, ...]] = {}
    for row, values in printed.rows.items():
        each = [value / count for value, count in zip(values, chunks, strict=False) if value is not None]
        rows[row] = (*each, fmean(each))
    return PrintedTable(printed.label, printed.title, printed.columns, rows, {})
