"""What a section shows besides lines: accuracy matrices, speed, and the stream."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.report.comparison import Content
from prol.report.figures import BLUE, COLOUR_MAP, INK, ORANGE
from prol.report.page.found import ReadRun
from prol.report.page.sections import Section
from prol.report.page.tables import task_sizes
from prol.report.page.wording import printable
from prol.report.picture import Picture, short, written_by
from prol.report.stream_plot import draw_presence, height_of, name_classes

_MOST_NUMBERED_TASKS = 20
_UNMIXED = ("disjoint", "imbalanced")


def matrix_pictures(section: Section) -> list[Picture]:
    """One accuracy matrix a method, as the mean over its seeds."""
    pictures = []
    for number, row in enumerate(section.rows, start=1):
        runs = section.runs_of[row.name]
        mean = np.mean([run.files.result["accuracy_matrix"] for run in runs], axis=0)
        pictures.append(
            Picture(
                name=f"matrix-{number:02d}-{re.sub(r'[^A-Za-z0-9]+', '-', row.name).strip('-')[:60]}",
                title=row.name,
                words=f"Accuracy matrix of {row.name}, in %: test images of each task after each task. At the end, "
                f"from the first task to the last: {', '.join(f'{value:.0f}' for value in mean[:, -1])}.",
                draw=partial(_draw_matrix, values=mean),
                height=3.3,
                width=3.6,
            )
        )
    return pictures


def speed_picture(section: Section) -> Picture | None:
    """Images a second as bars; None where no run wrote its times."""
    rows = [row for row in section.rows if row.images_per_second is not None]
    if not rows:
        return None
    speeds = [row.images_per_second or 0.0 for row in rows]
    said = "; ".join(f"{row.name} {speed:,.0f}" for row, speed in zip(rows, speeds, strict=True))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        colours = [ORANGE if row.side_by_side else BLUE for row in rows]
        hatches = ["//" if row.side_by_side else "" for row in rows]
        bars = axes.barh(range(len(rows)), speeds, color=colours, hatch=hatches, edgecolor="white", linewidth=0)
        axes.bar_label(bars, [f"{speed:,.{0 if speed >= 10 else 1}f}" for speed in speeds], padding=3, fontsize=8)
        axes.set_yticks(range(len(rows)), [short(row.name) for row in rows], fontsize=8)
        axes.grid(visible=False, axis="y")
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set(xlabel="images a second while learning", xlim=(0, 1.18 * max(*speeds, 1e-9)))

    return Picture("speed", "Speed of learning", f"Images a second while learning: {said}.", draw, 1 + 0.2 * len(rows))


def stream_picture(section: Section) -> Picture:
    """Which classes came when, of the first run."""
    run = section.first
    seed = run.files.config["seed"]
    classes = [short(printable(name)) for task in run.files.result["task_classes"] for name in task]
    tasks = len(run.files.result["task_classes"])
    words = f"Which of {len(classes)} classes came when, seed {seed}: {tasks} tasks, one after the other."

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.grid(visible=False)
        if run.presence is None:
            _draw_tasks(axes, run)
        else:
            _draw_counts(figure, axes, run.presence)
        name_classes(axes, classes)
        axes.set_ylabel("classes, by task")

    return Picture("stream", f"The stream, seed {seed}", words, draw, 0.75 * height_of(len(classes)))


def _draw_counts(figure: Any, axes: Any, presence: Content) -> None:
    counts = np.array([[int(count) for count in row.split()] for row in presence["presence"]], dtype=np.int64)
    draw_presence(figure, axes, counts, int(counts.sum()))
    for start in presence["task_starts"][1:]:
        axes.axvline(start, color=INK, linewidth=0.5)
    axes.set_xlabel("images so far")
    axes.xaxis.set_major_formatter(written_by(lambda place: f"{place:,.0f}"))


def _draw_tasks(axes: Any, run: ReadRun) -> None:
    """A block a task, as wide as it has images where that is known, and as high as it has classes."""
    groups = [len(task) for task in run.files.result["task_classes"]]
    sizes = task_sizes(run)
    widths = sizes or [1] * len(groups)
    lefts, tops = (np.cumsum([0, *lengths[:-1]]) for lengths in (widths, groups))
    axes.bar(lefts, groups, widths, bottom=tops, align="edge", color=BLUE, alpha=0.8)
    for task, (left, top, width, group) in enumerate(zip(lefts, tops, widths, groups, strict=True), start=1):
        if len(groups) <= _MOST_NUMBERED_TASKS:
            middle = (left + width / 2, top + group / 2)
            axes.text(*middle, str(task), ha="center", va="center", color="#ffffff", fontsize=8)
    axes.set(xlim=(0, sum(widths)), ylim=(sum(groups), 0))
    axes.set_xlabel("images so far" if sizes else "tasks, all drawn alike")
    axes.xaxis.set_major_formatter(written_by(lambda place: f"{place:,.0f}" if sizes else ""))


def stream_words(run: ReadRun) -> str:
    """How exact the picture of the stream is."""
    protocol = str(run.files.config["protocol"]["name"])
    if run.presence is not None:
        return "Counted from the stream itself."
    if protocol in _UNMIXED:
        return "Every class comes in its own task and nowhere else; how it is spread within is not in these files."
    return (
        f"Drawn is the task that each class belongs to. With {printable(protocol)} classes also come elsewhere; when "
        "exactly is not in these files (stream.json is missing)."
    )


def _draw_matrix(figure: Any, values: NDArray[np.float64]) -> None:
    axes = figure.subplots()
    row, column = np.indices(values.shape)
    masked = np.ma.masked_where(row > column, values)
    # Cells as shapes, not as an image: they stay sharp at any size.
    edges = np.arange(len(values) + 1) + 0.5
    mesh = axes.pcolormesh(edges, edges, masked, cmap=COLOUR_MAP, vmin=0, vmax=100, linewidth=0)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.set(xlabel="after task", ylabel="test images of task", aspect="equal")
    ticks = np.unique(np.linspace(1, len(values), min(len(values), 10)).astype(int))
    axes.set_xticks(ticks, ticks)
    axes.set_yticks(ticks, ticks)
    if len(values) <= _MOST_NUMBERED_TASKS:
        _number_cells(axes, values)
    else:
        figure.colorbar(mesh, ax=axes, label="accuracy, %")


def _number_cells(axes: Any, values: NDArray[np.float64]) -> None:
    for task in range(len(values)):
        for after in range(task, len(values)):
            value = values[task, after]
            colour = "#000000" if value > 50 else "#ffffff"
            axes.text(
                after + 1,
                task + 1,
                f"{value:.0f}",
                ha="center",
                va="center",
                color=colour,
                fontsize=8 if len(values) <= 10 else 5.5,
                in_layout=False,
            )
