"""Our numbers beside printed ones: the content of a reproduction's `table.json`, as Markdown, CSV and figures.

The Markdown's columns are aligned, so that it also reads well on a terminal. In figures, ours and the paper's numbers
have the same colours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Literal

from prol.report.plot import BLUE, ORANGE, Plot, draw_band, line_style, whole_numbers
from prol.report.table import NOT_KNOWN, Spread, Table, csv_text

_MOST_SIDE_BY_SIDE = 4
"""Columns up to which ours, the paper's and the difference are beside each other; else one below the other."""
_SLIP = "†"

Figure = Literal["lines", "bars", "fit"]


@dataclass(frozen=True)
class Pair:
    """One cell: ours over seeds, the printed number, and the known error of that number, if any."""

    ours: Spread | None = None
    paper: float | None = None
    slip: str | None = None

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper

    def texts(self, digits: int) -> list[str]:
        """Ours, the paper's and the difference."""
        paper = NOT_KNOWN if self.paper is None else f"{self.paper:.{digits}f}{_SLIP if self.slip else ''}"
        difference = NOT_KNOWN if self.difference is None else f"{self.difference:+.{digits}f}"
        return [NOT_KNOWN if self.ours is None else self.ours.text(digits), paper, difference]


@dataclass(frozen=True)
class Fit:
    """A straight line through points: value = slope x + intercept, and the share of variance it explains."""

    slope: float
    intercept: float
    r_squared: float

    @classmethod
    def through(cls, x: Sequence[float], y: Sequence[float]) -> Fit | None:
        """Least squares; None where fewer than two places are given.

        >>> Fit.through([1, 2, 3], [3.0, 5.0, 7.0])
        Fit(slope=2.0, intercept=1.0, r_squared=1.0)
        """
        if len(set(x)) < 2:
            return None
        centre, level = sum(x) / len(x), sum(y) / len(y)
        width = sum((one - centre) ** 2 for one in x)
        slope = sum((one - centre) * (other - level) for one, other in zip(x, y, strict=True)) / width
        intercept = level - slope * centre
        missed = sum((other - slope * one - intercept) ** 2 for one, other in zip(x, y, strict=True))
        spread = sum((other - level) ** 2 for other in y)
        return cls(slope, intercept, 1.0 - missed / spread if spread > 0 else 1.0)


@dataclass(frozen=True)
class SheetRow:
    """One row: a pair per column, the seeds behind it, and a remark such as "not run: why"."""

    name: str
    pairs: tuple[Pair, ...]
    seeds: tuple[int, ...] = ()
    remark: str = ""
    fit: Fit | None = None


@dataclass(frozen=True)
class SheetTable:
    """One table of an item.

    Args:
        name: of its figure's file.
        label: of the paper's table beside it; empty where there is none.
        columns: their titles.
        x: the columns as numbers, for a figure of lines; empty otherwise.
        digits: after the decimal point, in all columns or in each.
        fit: the unit of the slope of the rows' fits; empty without fits.
    """

    name: str
    title: str
    label: str
    columns: tuple[str, ...]
    rows: tuple[SheetRow, ...]
    row_title: str = "method"
    digits: int | tuple[int, ...] = 2
    figure: Figure | None = None
    x: tuple[float, ...] = ()
    x_title: str = ""
    y_title: str = ""
    fit: str = ""
    notes: tuple[str, ...] = ()

    @property
    def has_paper(self) -> bool:
        return any(pair.paper is not None for row in self.rows for pair in row.pairs)

    def texts(self, row: SheetRow) -> list[list[str]]:
        """Ours, the paper's and the difference, for each column."""
        digits = self.digits if isinstance(self.digits, tuple) else (self.digits,) * len(self.columns)
        return [pair.texts(places) for pair, places in zip(row.pairs, digits, strict=True)]


@dataclass(frozen=True)
class Sheet:
    """All tables of an item; `settings` are triples of what, here, and in the paper."""

    item: str
    about: str
    settings: tuple[tuple[str, str, str], ...]
    tables: tuple[SheetTable, ...]


def sheet_markdown(sheet: Sheet, figures: Sequence[str] = ()) -> str:
    """The item as a page: what differs from the paper, then its tables, then its figures by their file names."""
    lines = [f"# {sheet.item}: {sheet.about}", "", *_settings(sheet)]
    for table in sheet.tables:
        lines += ["", f"## {table.title}", ""]
        if table.label:
            lines += [f"The paper's numbers: `{table.label}`.", ""]
        lines += _aligned(_stacked(table) if len(table.columns) > _MOST_SIDE_BY_SIDE else _side_by_side(table))
        pairs = [(row, *pair) for row in table.rows for pair in zip(table.columns, row.pairs, strict=True)]
        slips = [
            f"{_SLIP} {row.name}, {title}: a slip of the paper; {pair.slip}." for row, title, pair in pairs if pair.slip
        ]
        notes = [*slips, *table.notes]
        lines += ["", *(f"- {note}" for note in notes)] if notes else []
    if figures:
        lines += ["", *(f"![{name}]({name})" for name in figures)]
    return "\n".join(lines) + "\n"


def sheet_csv(sheet: Sheet) -> str:
    """One line per cell."""
    titles = ["table", "label", "row", "column", "mean", "deviation", "values", "paper", "difference", "slip", "remark"]
    rows = [
        [
            *(table.name, table.label, row.name, column),
            *((pair.ours.mean, pair.ours.deviation, " ".join(map(str, pair.ours.values))) if pair.ours else ("",) * 3),
            *(pair.paper, pair.difference, pair.slip, row.remark),
        ]
        for table in sheet.tables
        for row in table.rows
        for column, pair in zip(table.columns, row.pairs, strict=True)
    ]
    return csv_text([titles, *rows])


def _settings(sheet: Sheet) -> list[str]:
    if not sheet.settings:
        return ["Nothing was run."]
    rows = [[what, here, paper] for what, here, paper in sheet.settings]
    table = _aligned([["", "here", "the paper"], *rows], texts=True)
    return ["What differs from the paper:", "", *table]


def _side_by_side(table: SheetTable) -> list[list[str]]:
    beside = ["paper", "difference"] if table.has_paper else []
    head = [table.row_title, *(title for column in table.columns for title in (column, *beside))]
    shown = 1 + len(beside)
    rows = [
        [row.name, *(text for texts in table.texts(row) for text in texts[:shown]), *_ending(table, row)]
        for row in table.rows
    ]
    return [[*head, *_ending_titles(table)], *rows]


def _stacked(table: SheetTable) -> list[list[str]]:
    kinds = ["ours", "paper", "difference"] if table.has_paper else ["ours"]
    lines = [[table.row_title, "", *table.columns, *_ending_titles(table)]]
    for row in table.rows:
        texts = table.texts(row)
        for number, kind in enumerate(kinds):
            if kind != "ours" and all(text[number] == NOT_KNOWN for text in texts):
                continue
            ending = _ending(table, row) if number == 0 else [""] * len(_ending_titles(table))
            lines.append([row.name if number == 0 else "", kind, *(text[number] for text in texts), *ending])
    return lines


def _ending_titles(table: SheetTable) -> list[str]:
    fits = [table.fit, "at 0", "R²"] if table.fit else []
    return fits + (["remark"] if any(row.remark for row in table.rows) else [])


def _ending(table: SheetTable, row: SheetRow) -> list[str]:
    fits: list[str] = []
    if table.fit:
        fit = row.fit
        fits = [NOT_KNOWN] * 3 if fit is None else [f"{fit.slope:.3g}", f"{fit.intercept:.3g}", f"{fit.r_squared:.4f}"]
    return fits + ([row.remark] if any(one.remark for one in table.rows) else [])


def _aligned(cells: list[list[str]], texts: bool = False) -> list[str]:
    """Lines of Markdown from cells, titles first; columns with numbers are aligned right unless all are texts."""
    head, *rows = cells
    columns = range(len(head))
    kinds = ["l" if texts or not any(re.match(r"[+-]?\d", row[column]) for row in rows) else "r" for column in columns]
    return Table.of(head, rows, "".join(kinds)).markdown(aligned=True)


Draw = Callable[[SheetTable, Any], None]


def plot_sheet(sheet: Sheet, folder: Path) -> list[str]:
    """Draws each table that has a figure and a number of ours as PNG and SVG; returns the names of the PNGs."""
    drawn = []
    for table in sheet.tables:
        if table.figure is None or not any(pair.ours for row in table.rows for pair in row.pairs):
            continue
        draw, size = _DRAWN[table.figure]
        width, height = size(table)
        plot = Plot(table.title, partial(draw, table), height, width)
        for kind in ("png", "svg"):
            plot.write(folder / f"{table.name}.{kind}")
        drawn.append(f"{table.name}.png")
    return drawn


def _lines(table: SheetTable, figure: Any) -> None:
    """Ours left and the paper's right, over the same axes; the paper's is left out where it has nothing."""
    panels = _panels(table)
    all_axes = figure.subplots(1, len(panels), sharey="%" in table.y_title, squeeze=False)[0]
    for axes, panel in zip(all_axes, panels, strict=True):
        numbered = dict(enumerate(table.rows))
        rows = numbered if panel == "ours" else _each_once(numbered)
        for number, row in rows.items():
            _line(axes, table, row, panel, line_style(number), label=row.name if panel == "ours" else None)
        axes.set(xlabel=table.x_title, title="here" if panel == "ours" else "as printed in the paper")
        whole_numbers(axes.xaxis)
    all_axes[0].set_ylabel(table.y_title)
    figure.legend(loc="outside right center")


def _panels(table: SheetTable) -> list[str]:
    return ["ours", "paper"] if table.has_paper else ["ours"]


def _each_once(rows: dict[int, SheetRow]) -> dict[int, SheetRow]:
    """Rows by number, without those that have the same printed numbers as an earlier one."""
    printed: dict[tuple[float | None, ...], int] = {}
    for number, row in rows.items():
        printed.setdefault(tuple(pair.paper for pair in row.pairs), number)
    return {number: rows[number] for number in printed.values()}


def _line(axes: Any, table: SheetTable, row: SheetRow, panel: str, style: dict[str, Any], label: str | None) -> None:
    known = [(x, value) for x, pair in zip(table.x, row.pairs, strict=False) if (value := _value(pair, panel))]
    if known or panel == "ours":
        x, values = [place for place, _ in known], [value for _, value in known]
        axes.plot(x, [value.mean for value in values], label=label, **style)
        draw_band(axes, x, values, -inf, inf, color=style["color"], alpha=0.15)


def _bars(table: SheetTable, figure: Any) -> None:
    """The first column's numbers, ours and the paper's, one pair of bars per row."""
    axes = figure.subplots()
    places = range(len(table.rows))
    for panel, colour, shift, label in (("ours", BLUE, -0.2, "here"), ("paper", ORANGE, 0.2, "paper")):
        values = [_value(row.pairs[0], panel) for row in table.rows]
        known = [(place + shift, value) for place, value in zip(places, values, strict=True) if value]
        errors = [value.deviation or 0.0 for _, value in known]
        axes.barh(
            [place for place, _ in known],
            [value.mean for _, value in known],
            height=0.38,
            color=colour,
            xerr=errors if any(errors) else None,
            label=label if known else None,
        )
    axes.set_yticks(places, [row.name for row in table.rows])
    axes.invert_yaxis()
    axes.set_xlabel(f"{table.columns[0]}, {table.y_title}")
    axes.grid(visible=False, axis="y")
    axes.legend()


def _fit(table: SheetTable, figure: Any) -> None:
    axes = figure.subplots()
    for number, row in enumerate(table.rows):
        style, fit = line_style(number), row.fit
        points = [
            (x, value) for x, pair in zip(table.x, row.pairs, strict=True) if pair.ours for value in pair.ours.values
        ]
        label = row.name if fit is None else f"{row.name}: {fit.slope:.3g} {table.fit}, R² = {fit.r_squared:.4f}"
        axes.plot([x for x, _ in points], [y for _, y in points], style["marker"], color=style["color"], label=label)
        if fit is not None and points:
            ends = [0.0, max(x for x, _ in points)]
            axes.plot(ends, [fit.slope * x + fit.intercept for x in ends], color=style["color"], linewidth=1)
    axes.set(xlabel=table.x_title, ylabel=table.y_title, xlim=(0, None), ylim=(0, None))
    axes.legend()


def _value(pair: Pair, panel: str) -> Spread | None:
    """Ours, or the printed number as if of a single seed."""
    return pair.ours if panel == "ours" else None if pair.paper is None else Spread.of([pair.paper])


_DRAWN: dict[str, tuple[Draw, Callable[[SheetTable], tuple[float, float]]]] = {
    "lines": (_lines, lambda table: (5 * len(_panels(table)) + 2.5, max(4.2, 0.25 * len(table.rows) + 1))),
    "bars": (_bars, lambda table: (8, max(3.0, 0.42 * len(table.rows) + 1.2))),
    "fit": (_fit, lambda _: (7.5, 4.6)),
}
"""How each kind of figure is drawn, and its width and height in inches."""
