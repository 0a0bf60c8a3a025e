"""Accuracy and missed images against the rate at which data arrive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table as RichTable

from prol.report.plot import BLUE, ORANGE, figure_file
from prol.report.table import Table
from prol.runfiles import Content


def rate_table(points: Sequence[Content]) -> RichTable:
    """One row per rate."""
    rows = [
        [
            "data wait" if point["rate"] is None else f"{point['rate']:g}",
            f"{point['faa']:.2f}",
            f"{point['caa']:.2f}",
            f"{100 * point['missed_share']:.1f}",
            *("-" if point[lag] is None else f"{1000 * point[lag]:.1f}" for lag in ("mean_lag", "most_lag")),
        ]
        for point in points
    ]
    titles = ("images/s arriving", "FAA, %", "CAA, %", "missed, %", "mean lag, ms", "most lag, ms")
    return Table.of(titles, rows, "r" * len(titles)).rich()


def plot_rates(points: Sequence[Content], title: str, file: Path) -> None:
    """Draws the points of a `curve.json` as PNG or SVG; the dotted line is the accuracy when data wait."""
    timed = [point for point in points if point["rate"] is not None]
    rates = [point["rate"] for point in timed]
    with figure_file(file, (7, 4.2), title) as figure:
        axes = figure.subplots()
        axes.plot(rates, [point["faa"] for point in timed], color=BLUE, marker="o", label="final accuracy")
        missed = [100 * point["missed_share"] for point in timed]
        axes.plot(rates, missed, color=ORANGE, marker="s", linestyle="--", label="images missed")
        for point in points:
            if point["rate"] is None:
                axes.axhline(point["faa"], color=BLUE, linestyle=":", label="final accuracy when data wait")
        axes.set(xscale="log", xlabel="arriving images per second", ylabel="%", ylim=(0, 101))
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(loc="best")
