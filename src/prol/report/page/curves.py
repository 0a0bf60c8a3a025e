"""Lines of many methods: a few at a time in colours, all others behind them in grey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from prol.report.comparison import Spread
from prol.report.figures import COLOURS, LINE, MARKERS
from prol.report.page.found import ReadRun
from prol.report.page.sections import Section
from prol.report.page.tables import history_of
from prol.report.picture import Picture, short, whole_numbers, written_by

TOGETHER = len(COLOURS)
"""As many lines as there are colours that everyone can tell apart."""
_LINES = ("-", "--", "-.", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), "-")
_LEGEND_SIGNS = 24


@dataclass(frozen=True)
class Line:
    """One method: where it was measured, and what was found over the seeds."""

    name: str
    places: Sequence[float]
    values: Sequence[Spread]


@dataclass(frozen=True)
class Curves:
    """What is drawn, in words; a share lies between 0 and 100."""

    name: str
    title: str
    across: str
    up: str
    lines: Sequence[Line]

    def pictures(self) -> list[Picture]:
        """One for every few lines, all on the same axes."""
        each = -(-len(self.lines) // -(-len(self.lines) // TOGETHER))  # all groups alike, none of a single line
        groups = [self.lines[start : start + each] for start in range(0, len(self.lines), each)]
        return [self._picture(number, group, len(groups)) for number, group in enumerate(groups)]

    def _picture(self, number: int, group: Sequence[Line], groups: int) -> Picture:
        of_several = f", {number + 1} of {groups}" if groups > 1 else ""
        ends = "; ".join(f"{line.name} {line.values[-1].mean:.1f}" for line in group if line.values)
        rows = -(-len(group) // _columns(group))
        return Picture(
            name=f"{self.name}-{number + 1}" if groups > 1 else self.name,
            title=f"{self.title}{of_several}",
            words=f"{self.title}{of_several}: lines over {self.across}. At the end, in %: {ends}.",
            draw=lambda figure: self._draw(figure, group),
            height=2.95 + 0.17 * rows,
        )

    def _draw(self, figure: Any, group: Sequence[Line]) -> None:
        axes = figure.subplots()
        for line in self.lines:
            if line not in group:
                axes.plot(line.places, [value.mean for value in line.values], color=LINE, linewidth=0.9, zorder=1)
        for number, line in enumerate(group):
            _draw_line(axes, number, line)
        axes.set(xlabel=self.across, ylabel=self.up)
        values = [value for line in self.lines for value in line.values]
        lowest, highest = (min(v.mean for v in values), max(v.mean + (v.deviation or 0.0) for v in values))
        # All pictures of these lines have the same axis, from where the lowest line needs it.
        axes.set_ylim(max(5 * ((lowest - 2) // 5), 0), min(highest * 1.05 + 1, 101))
        wide = max((line.places[-1] for line in self.lines if line.places), default=0) > 999
        if wide:
            axes.xaxis.set_major_formatter(written_by(lambda place: f"{place:,.0f}"))
        whole_numbers(axes.xaxis, most=4 if wide else 10)
        figure.legend(loc="outside lower center", ncols=_columns(group), handlelength=3)


def history_curves(section: Section) -> list[Curves]:
    """Average accuracy and forgetting after each task."""
    tasks = [float(task + 1) for task in range(len(section.rows[0].history))]
    return [
        Curves(
            name,
            title,
            "after task",
            up,
            [Line(row.name, tasks, history_of(section.runs_of[row.name], metric)) for row in section.rows],
        )
        for name, title, up, metric in (
            ("accuracy-after-each-task", "Average accuracy after each task", "accuracy, %", "average_accuracy"),
            ("forgetting-after-each-task", "Forgetting after each task", "forgetting, %", "forgetting_history"),
        )
    ]


def anytime_curves(section: Section) -> Curves | None:
    """Accuracy at points of the stream on the classes that had come; None where no run measured it."""
    lines = [_anytime_line(row.name, section.runs_of[row.name]) for row in section.rows]
    measured = [line for line in lines if line.values]
    if not measured:
        return None
    return Curves("accuracy-at-any-time", "Accuracy at any time", "images seen", "accuracy, %", measured)


def _anytime_line(name: str, runs: Sequence[ReadRun]) -> Line:
    # A point is [images, classes, correct, total]; the seeds' points lie at most a chunk apart.
    points = list(zip(*(run.files.result.get("points") or [] for run in runs), strict=False))
    return Line(
        name,
        [fmean(point[0] for point in seeds) for seeds in points],
        [Spread.of([100.0 * point[2] / max(point[3], 1) for point in seeds]) for seeds in points],
    )


def _draw_line(axes: Any, number: int, line: Line) -> None:
    colour, means = COLOURS[number], [value.mean for value in line.values]
    axes.plot(
        line.places,
        means,
        color=colour,
        linestyle=_LINES[number],
        marker=MARKERS[number],
        label=short(line.name, 48),
        zorder=3,
    )
    widths = [value.deviation or 0.0 for value in line.values]
    if any(widths):
        low = [max(mean - width, 0) for mean, width in zip(means, widths, strict=True)]
        high = [min(mean + width, 100) for mean, width in zip(means, widths, strict=True)]
        axes.fill_between(line.places, low, high, color=colour, alpha=0.18, linewidth=0, zorder=2)


def _columns(group: Sequence[Line]) -> int:
    return 2 if max(len(line.name) for line in group) <= _LEGEND_SIGNS else 1
