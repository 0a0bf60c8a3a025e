"""A stream as one plot: which classes come when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.report.plot import COLOUR_MAP, check_figure_file, require_matplotlib

_MOST_NAMED_CLASSES = 40
_DOTS_AN_INCH = 120


def plot_stream(
    counts: NDArray[np.int64],
    task_starts: Sequence[int],
    class_names: Sequence[str] | None,
    title: str,
    file: Path,
) -> None:
    """Draws the presence of classes over time as PNG or SVG.

    Parameters
    ----------
    counts
        Samples of each class in each stretch of time, `[classes, bins]`, as `prol.data.streams.class_presence` returns
        them. The colour is a class's share of its stretch; where it has no sample, the paper stays white.
    task_starts
        At which samples tasks begin; a thin line is drawn at each but the first.
    class_names
        One for each row, written where there is room; elsewhere rows are counted.
    title
        What the plot shows.
    file
        Ends in .png or .svg.
    """
    check_figure_file(file)
    if class_names is not None and len(class_names) != len(counts):
        raise ValueError(f"{len(counts)} classes need as many names, got {len(class_names)}")
    figure_kind = require_matplotlib()
    figure = figure_kind(figsize=(8, height_of(len(counts))), layout="constrained")
    axes = figure.subplots()
    draw_presence(figure, axes, counts, int(counts.sum()))
    for start in task_starts[1:]:
        axes.axvline(start, color="black", linewidth=0.5)
    name_classes(axes, class_names)
    axes.set(xlabel="samples so far", ylabel="classes, by task")
    # A class or a file may be called anything: no name is read as a formula.
    axes.set_title(title, parse_math=False)
    figure.savefig(file, dpi=_DOTS_AN_INCH)


def height_of(classes: int) -> float:
    """Inches: one line of text per class where classes are named, one row of dots for up to a thousand of them."""
    return max(3.2, 0.2 * classes) if classes <= _MOST_NAMED_CLASSES else min(4 + classes / 160, 10)


def draw_presence(figure: Any, axes: Any, counts: NDArray[np.int64], samples: int) -> None:
    """Classes as rows over a stream of so many samples."""
    shares = 100 * counts / np.maximum(counts.sum(axis=0), 1)
    # A few stretches of very few classes must not leave all others without colour.
    most = np.percentile(shares[shares > 0], 99)
    image = axes.imshow(
        np.ma.masked_equal(shares, 0),
        cmap=COLOUR_MAP,
        vmin=0,
        vmax=most,
        aspect="auto",
        interpolation="nearest",
        extent=(0, samples, len(counts), 0),
    )
    extend = "max" if shares.max() > most else "neither"
    figure.colorbar(image, ax=axes, extend=extend, label="share of the samples then, %")


def name_classes(axes: Any, names: Sequence[str] | None) -> None:
    """Names beside their rows, where there is room."""
    if names is not None and len(names) <= _MOST_NAMED_CLASSES:
        axes.set_yticks(np.arange(len(names)) + 0.5, names, parse_math=False, fontsize=8)
