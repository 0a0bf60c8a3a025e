"""The plots of a section: lines over the stream, accuracy matrices, speed, and the stream itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.report.comparison import Spread
from prol.report.page.sections import Section
from prol.report.page.tables import History, history_of, task_sizes
from prol.report.plot import (
    BLUE,
    COLOURS,
    INK,
    LINE,
    MARKERS,
    MOST_NUMBERED_TASKS,
    ORANGE,
    Plot,
    draw_band,
    draw_matrix,
    format_ticks,
    short,
    whole_numbers,
)
from prol.report.stream_plot import draw_presence, height_of, name_classes
from prol.report.table import printable
from prol.runfiles import RunFiles

_LINES = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), "-")
_LEGEND_WIDTH = 24
_UNMIXED = ("disjoint", "imbalanced")
_HISTORIES: tuple[tuple[str, str, str, History], ...] = (
    ("accuracy-after-each-task", "Average accuracy after each task", "accuracy, %", "average_accuracy"),
    ("forgetting-after-each-task", "Forgetting after each task", "forgetting, %", "forgetting_history"),
)


@dataclass(frozen=True)
class Line:
    """One method: where it was measured, and the measure over the seeds."""

    name: str
    x: Sequence[float]
    values: Sequence[Spread]


@dataclass(frozen=True)
class Curves:
    """Lines of many methods in percent: a few at a time in colours, all others behind them in grey."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]

    def plots(self) -> list[Plot]:
        """One for as many lines as there are distinguishable colours, all with the same axes."""
        each = -(-len(self.lines) // -(-len(self.lines) // len(COLOURS)))  # equal groups, none of a single line
        groups = [self.lines[start : start + each] for start in range(0, len(self.lines), each)]
        return [self._plot(number, group, len(groups)) for number, group in enumerate(groups)]

    def _plot(self, number: int, group: Sequence[Line], groups: int) -> Plot:
        of_several = f", {number + 1} of {groups}" if groups > 1 else ""
        ends = "; ".join(f"{line.name} {line.values[-1].mean:.1f}" for line in group if line.values)
        return Plot(
            name=f"{self.name}-{number + 1}" if groups > 1 else self.name,
            title=f"{self.title}{of_several}",
            alt=f"{self.title}{of_several}: lines over {self.x_label}. At the end, in %: {ends}.",
            draw=partial(self._draw, group=group),
            height=2.95 + 0.17 * -(-len(group) // _legend_columns(group)),
        )

    def _draw(self, figure: Any, group: Sequence[Line]) -> None:
        axes = figure.subplots()
        for line in self.lines:
            if line not in group:
                axes.plot(line.x, [value.mean for value in line.values], color=LINE, linewidth=0.9, zorder=1)
        for line, colour, style, marker in zip(group, COLOURS, _LINES, MARKERS, strict=False):
            means = [value.mean for value in line.values]
            label = short(line.name, 48)
            axes.plot(line.x, means, color=colour, linestyle=style, marker=marker, label=label, zorder=3)
            draw_band(axes, line.x, line.values, color=colour, alpha=0.18, zorder=2)
        axes.set(xlabel=self.x_label, ylabel=self.y_label)
        values = [value for line in self.lines for value in line.values]
        lowest, highest = (min(v.mean for v in values), max(v.mean + (v.deviation or 0.0) for v in values))
        # All plots of these lines have the same axis, from where the lowest line needs it.
        axes.set_ylim(max(5 * ((lowest - 2) // 5), 0), min(highest * 1.05 + 1, 101))
        wide = max((line.x[-1] for line in self.lines if line.x), default=0) > 999
        if wide:
            format_ticks(axes.xaxis, lambda x: f"{x:,.0f}")
        whole_numbers(axes.xaxis, most=4 if wide else 10)
        figure.legend(loc="outside lower center", ncols=_legend_columns(group), handlelength=3)


def _legend_columns(group: Sequence[Line]) -> int:
    return 2 if max(len(line.name) for line in group) <= _LEGEND_WIDTH else 1


def history_curves(section: Section) -> list[Curves]:
    """Average accuracy and forgetting after each task."""
    tasks = [float(task + 1) for task in range(len(section.rows[0].history))]
    return [
        Curves(
            name,
            title,
            "after task",
            y_label,
            [Line(row.name, tasks, history_of(section.runs_of[row.name], metric)) for row in section.rows],
        )
        for name, title, y_label, metric in _HISTORIES
    ]


def anytime_curves(section: Section) -> Curves | None:
    """Accuracy at points of the stream on the classes seen so far; None where no run measured it."""
    lines = [_anytime_line(row.name, section.runs_of[row.name]) for row in section.rows]
    measured = [line for line in lines if line.values]
    if not measured:
        return None
    return Curves("accuracy-at-any-time", "Accuracy at any time", "images seen", "accuracy, %", measured)


def _anytime_line(name: str, runs: Sequence[RunFiles]) -> Line:
    # A point is [images, classes, correct, total]; the seeds' points are at most one chunk apart.
    points = list(zip(*(run.result.get("points") or [] for run in runs), strict=False))
    return Line(
        name,
        [fmean(point[0] for point in seeds) for seeds in points],
        [Spread.of([100.0 * point[2] / max(point[3], 1) for point in seeds]) for seeds in points],
    )


def matrix_plots(section: Section) -> list[Plot]:
    """One accuracy matrix per method, as the mean over its seeds."""
    plots = []
    for number, row in enumerate(section.rows, start=1):
        mean = np.mean([run.result["accuracy_matrix"] for run in section.runs_of[row.name]], axis=0)
        plots.append(
            Plot(
                name=f"matrix-{number:02d}-{re.sub(r'[^A-Za-z0-9]+', '-', row.name).strip('-')[:60]}",
                title=row.name,
                alt=f"Accuracy matrix of {row.name}, in %: test images of each task after each task. At the end, "
                f"from the first task to the last: {', '.join(f'{value:.0f}' for value in mean[:, -1])}.",
                draw=partial(_draw_matrix, values=mean),
                height=3.3,
                width=3.6,
            )
        )
    return plots


def _draw_matrix(figure: Any, values: NDArray[np.float64]) -> None:
    draw_matrix(figure, figure.subplots(), values)


def speed_plot(section: Section) -> Plot | None:
    """Images per second as bars; None where no run recorded its times."""
    rows = [row for row in section.rows if row.images_per_second is not None]
    if not rows:
        return None
    speeds = [row.images_per_second or 0.0 for row in rows]
    described = "; ".join(f"{row.name} {speed:,.0f}" for row, speed in zip(rows, speeds, strict=True))

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        colours = [ORANGE if row.side_by_side else BLUE for row in rows]
        hatches = ["//" if row.side_by_side else "" for row in rows]
        bars = axes.barh(range(len(rows)), speeds, color=colours, hatch=hatches, edgecolor="white", linewidth=0)
        axes.bar_label(bars, [f"{speed:,.{0 if speed >= 10 else 1}f}" for speed in speeds], padding=3, fontsize=8)
        axes.set_yticks(range(len(rows)), [short(row.name) for row in rows], fontsize=8)
        axes.grid(visible=False, axis="y")
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set(xlabel="images per second while learning", xlim=(0, 1.18 * max(*speeds, 1e-9)))

    alt = f"Images per second while learning: {described}."
    return Plot("speed", "Speed of learning", alt, draw, 1 + 0.2 * len(rows))


def stream_plot(section: Section) -> Plot:
    """When each class came, of the first run."""
    run, seed = section.first, section.first.config["seed"]
    tasks = run.result["task_classes"]
    classes = [short(printable(name)) for task in tasks for name in task]
    alt = f"When each of {len(classes)} classes came, seed {seed}: {len(tasks)} tasks, one after the other."

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.grid(visible=False)
        if run.presence is None:
            _draw_tasks(axes, run)
        else:
            counts = np.array(run.presence, dtype=np.int64)
            draw_presence(figure, axes, counts, int(counts.sum()))
            for start in run.task_starts[1:]:
                axes.axvline(start, color=INK, linewidth=0.5)
            axes.set_xlabel("images so far")
            format_ticks(axes.xaxis, lambda x: f"{x:,.0f}")
        name_classes(axes, classes)
        axes.set_ylabel("classes, by task")

    return Plot("stream", f"The stream, seed {seed}", alt, draw, 0.75 * height_of(len(classes)))


def _draw_tasks(axes: Any, run: RunFiles) -> None:
    """One block per task, as wide as its images where they are known, and as high as its classes."""
    groups = [len(task) for task in run.result["task_classes"]]
    sizes = task_sizes(run)
    widths = sizes or [1] * len(groups)
    lefts, tops = (np.cumsum([0, *lengths[:-1]]) for lengths in (widths, groups))
    axes.bar(lefts, groups, widths, bottom=tops, align="edge", color=BLUE, alpha=0.8)
    for task, (left, top, width, group) in enumerate(zip(lefts, tops, widths, groups, strict=True), start=1):
        if len(groups) <= MOST_NUMBERED_TASKS:
            middle = (left + width / 2, top + group / 2)
            axes.text(*middle, str(task), ha="center", va="center", color="#ffffff", fontsize=8)
    axes.set(xlim=(0, sum(widths)), ylim=(sum(groups), 0))
    axes.set_xlabel("images so far" if sizes else "tasks, all drawn alike")
    format_ticks(axes.xaxis, lambda x: f"{x:,.0f}" if sizes else "")


def stream_note(run: RunFiles) -> str:
    """How exact the plot of the stream is."""
    protocol = run.config["protocol"]["name"]
    if run.presence is not None:
        return "Counted from the stream itself."
    if protocol in _UNMIXED:
        return "Every class comes in its own task and nowhere else; its places within the task are not in these files."
    return (
        f"The task of each class is drawn. With {printable(protocol)} classes also come elsewhere; when exactly is not "
        "in these files (stream.json is missing)."
    )
