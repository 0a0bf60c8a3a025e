"""The plots of a section: lines over the stream, accuracy matrices, and speed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np

from prol.report.page.sections import Section
from prol.report.page.tables import History, history_of
from prol.report.plot import (
    BLUE,
    COLOURS,
    LINE,
    ORANGE,
    Plot,
    draw_band,
    draw_matrix,
    format_ticks,
    line_style,
    short,
    whole_numbers,
)
from prol.report.table import Spread
from prol.runfiles import RunFiles

_LEGEND_WIDTH = 24
_HISTORIES: tuple[tuple[str, str, str, History], ...] = (
    ("accuracy-after-each-task", "Average accuracy after each task", "accuracy, %", "average_accuracy"),
    ("forgetting-after-each-task", "Forgetting after each task", "forgetting, %", "forgetting_history"),
)


@dataclass(frozen=True)
class Curve:
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
    lines: Sequence[Curve]

    def plots(self) -> list[Plot]:
        """One for as many lines as there are distinguishable colours, all with the same axes."""
        each = -(-len(self.lines) // -(-len(self.lines) // len(COLOURS)))  # equal groups, none of a single line
        groups = [self.lines[start : start + each] for start in range(0, len(self.lines), each)]
        return [self._plot(number, group, len(groups)) for number, group in enumerate(groups)]

    def _plot(self, number: int, group: Sequence[Curve], groups: int) -> Plot:
        of_several = f", {number + 1} of {groups}" if groups > 1 else ""
        ends = "; ".join(f"{line.name} {line.values[-1].mean:.1f}" for line in group if line.values)
        return Plot(
            name=f"{self.name}-{number + 1}" if groups > 1 else self.name,
            title=f"{self.title}{of_several}",
            alt=f"{self.title}{of_several}: lines over {self.x_label}. At the end, in %: {ends}.",
            draw=partial(self._draw, group=group),
            height=2.95 + 0.17 * -(-len(group) // _legend_columns(group)),
        )

    def _draw(self, figure: Any, group: Sequence[Curve]) -> None:
        axes = figure.subplots()
        for line in self.lines:
            if line not in group:
                axes.plot(line.x, [value.mean for value in line.values], color=LINE, linewidth=0.9, zorder=1)
        for number, line in enumerate(group):
            style, means = line_style(number), [value.mean for value in line.values]
            axes.plot(line.x, means, label=short(line.name, 48), zorder=3, **style)
            draw_band(axes, line.x, line.values, color=style["color"], alpha=0.18, zorder=2)
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


def _legend_columns(group: Sequence[Curve]) -> int:
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
            [Curve(row.name, tasks, history_of(section.runs_of[row.name], metric)) for row in section.rows],
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


def _anytime_line(name: str, runs: Sequence[RunFiles]) -> Curve:
    # A point is [images, classes, correct, total]; the seeds' points are at most one chunk apart.
    points = list(zip(*(run.result.get("points") or [] for run in runs), strict=False))
    return Curve(
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
                draw=partial(draw_matrix, values=mean),
                height=3.3,
                width=3.6,
            )
        )
    return plots


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
    return Plot("Speed of learning", draw, 1 + 0.2 * len(rows), name="speed", alt=alt)
