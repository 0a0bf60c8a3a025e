"""The figures of a reproduction: ours and the paper's beside each other, in the same colours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from prol.report.plot import BLUE, ORANGE, Plot, draw_band, line_style, whole_numbers
from prol.report.sheet import Pair, Sheet, SheetRow, SheetTable
from prol.report.table import Spread

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
