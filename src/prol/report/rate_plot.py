"""Accuracy and lost data against the rate at which data come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from prol.report.figures import BLUE, ORANGE, check_figure_file, require_matplotlib


def rate_table(points: Sequence[Mapping[str, Any]]) -> Table:
    """One row a rate."""
    table = Table(box=SIMPLE)
    for title in ("images/s arriving", "FAA, %", "CAA, %", "missed, %", "mean lag, ms", "most lag, ms"):
        table.add_column(title, justify="right")
    for point in points:
        table.add_row(
            "data wait" if point["rate"] is None else f"{point['rate']:g}",
            f"{point['faa']:.2f}",
            f"{point['caa']:.2f}",
            f"{100 * point['missed_share']:.1f}",
            *("-" if point[lag] is None else f"{1000 * point[lag]:.1f}" for lag in ("mean_lag", "most_lag")),
        )
    return table


def plot_rates(points: Sequence[Mapping[str, Any]], title: str, file: Path) -> None:
    """Draws the points of a `curve.json` as PNG or SVG; the dotted line is the accuracy when data wait."""
    check_figure_file(file)
    figure = require_matplotlib()(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    timed = [point for point in points if point["rate"] is not None]
    rates = [point["rate"] for point in timed]
    axes.plot(rates, [point["faa"] for point in timed], color=BLUE, marker="o", label="final accuracy")
    missed = [100 * point["missed_share"] for point in timed]
    axes.plot(rates, missed, color=ORANGE, marker="s", linestyle="--", label="images missed")
    for point in points:
        if point["rate"] is None:
            axes.axhline(point["faa"], color=BLUE, linestyle=":", label="final accuracy when data wait")
    axes.set(xscale="log", xlabel="images a second that arrive", ylabel="%", ylim=(0, 101), title=title)
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(loc="best")
    figure.savefig(file, dpi=150)
