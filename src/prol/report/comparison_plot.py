"""A comparison as one picture: average accuracy after each task, one line a method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prol.report.comparison import Row
from prol.report.figures import COLOURS, LINES, MARKERS, check_figure_file, require_matplotlib


def plot_comparison(rows: Sequence[Row], title: str, file: Path) -> None:
    """Draws the rows as PNG or SVG, best first; bands are one sample deviation over seeds up and down."""
    check_figure_file(file)
    figure = require_matplotlib()(figsize=(10, max(4.2, 0.25 * len(rows) + 1)), layout="constrained")
    axes = figure.subplots()
    for number, row in enumerate(rows):
        colour, line = COLOURS[number % len(COLOURS)], LINES[number // len(COLOURS) % len(LINES)]
        tasks = list(range(1, len(row.history) + 1))
        means = [spread.mean for spread in row.history]
        widths = [spread.deviation or 0.0 for spread in row.history]
        marker = MARKERS[number % len(MARKERS)]
        label = f"{row.name}, {row.faa.mean:.1f}".replace("$", r"\$")  # no name is read as a formula
        axes.plot(tasks, means, color=colour, linestyle=line, marker=marker, markersize=4, label=label)
        if any(widths):
            low = [max(mean - width, 0) for mean, width in zip(means, widths, strict=True)]
            high = [min(mean + width, 100) for mean, width in zip(means, widths, strict=True)]
            axes.fill_between(tasks, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="after task", ylabel="accuracy on all test images so far, %", ylim=(0, 101))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    figure.suptitle(title, parse_math=False, fontsize=11)
    figure.legend(loc="outside right center", fontsize=8, title="method, final accuracy, %", title_fontsize=9)
    figure.savefig(file, dpi=150)
