"""Measurements of speed as pictures: ways to compute as bars, growth with classes as lines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prol.report.bench_table import headline, rate
from prol.report.figures import BLUE, ORANGE, check_figure_file, require_matplotlib

Content = Mapping[str, Any]


def plot_bench(content: Content, file: Path) -> None:
    """Draws what `prol bench ladder` or `prol bench growth` measured as PNG or SVG."""
    check_figure_file(file)
    draw = {"ladder": _draw_ladder, "growth": _draw_growth}.get(content["bench"])
    if draw is None:
        raise ValueError(f"there is no picture of {content['bench']}: measurements of ladder and growth are drawn")
    rows = [row for row in content["rows"] if "error" not in row]
    if not rows:
        raise ValueError("nothing was measured that could be drawn")
    figure = require_matplotlib()(figsize=(9, 4.2), layout="constrained")
    draw(figure, rows)
    figure.suptitle(headline(content), parse_math=False, fontsize=9, wrap=True)
    figure.savefig(file, dpi=150)


def _draw_ladder(figure: Any, rows: list[Mapping[str, Any]]) -> None:
    axes = figure.subplots()
    names, ratios = [row["rung"] for row in rows], [row["ratio"] for row in rows]
    # What is only a bound is not a way to learn: it has a colour of its own.
    colours = [ORANGE if name == "bare passes" else BLUE for name in names]
    bars = axes.barh(range(len(rows)), ratios, color=colours)
    speeds = [f"{row['ratio']:.2f}, {rate(row['images_per_second'])} images/s" for row in rows]
    axes.bar_label(bars, speeds, padding=3, fontsize=8)
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    axes.set(xlabel=f"times as fast as {names[0]}", xlim=(0, 1.35 * max(ratios)))
    axes.grid(axis="x", alpha=0.3)


def _draw_growth(figure: Any, rows: list[Mapping[str, Any]]) -> None:
    times, memory = figure.subplots(1, 2)
    classes = [row["classes"] for row in rows]
    for what, label, colour, style in (
        ("train", "step", BLUE, "o-"),
        ("predict", "prediction", ORANGE, "s--"),
    ):
        images = rows[0][what]["images"]
        milliseconds = [1000 * row[what]["median"] for row in rows]
        times.plot(classes, milliseconds, style, color=colour, label=f"{label}, {images} images")
    times.set(xscale="log", xlabel="classes known", ylabel="ms")
    times.legend(loc="best")
    memory.plot(classes, [row["memory_bytes"] / 2**30 for row in rows], "o-", color=BLUE)
    memory.set(xscale="log", xlabel="classes known", ylabel=f"GiB, {rows[0]['memory']}")
    for axes in (times, memory):
        axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
        axes.grid(alpha=0.3)
