"""A stream as one plot: which classes come when."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prol.report.plot import BLUE, COLOUR_MAP, INK, MOST_NUMBERED_TASKS, Plot, format_ticks, short
from prol.report.table import printable
from prol.runfiles import RunFiles

_MOST_NAMED_CLASSES = 40
_UNMIXED = ("disjoint", "imbalanced")


def plot_stream(
    counts: NDArray[np.int64], task_starts: Sequence[int], class_names: Sequence[str] | None, title: str, file: Path
) -> None:
    """Draws the presence of classes over time as PNG or SVG.

    Args:
        counts: samples of each class in each stretch of time, `[classes, bins]`, as
            `prol.data.streams.class_presence` returns them.
        task_starts: at which samples tasks begin; a thin line is drawn at each but the first.
        class_names: one for each row, written where there is room; elsewhere rows are counted.
    """
    if class_names is not None and len(class_names) != len(counts):
        raise ValueError(f"{len(counts)} classes need as many names, got {len(class_names)}")

    def draw(figure: Any) -> None:
        axes = _axes(figure, class_names)
        _draw_presence(figure, axes, counts, task_starts)
        axes.set_xlabel("samples so far")

    Plot(title, draw, _height(len(counts)), width=8, dpi=120).write(file)


def stream_plot(run: RunFiles) -> Plot:
    """When each class of a run came."""
    seed, tasks = run.config["seed"], run.result["task_classes"]
    classes = [short(printable(name)) for task in tasks for name in task]

    def draw(figure: Any) -> None:
        axes = _axes(figure, classes)
        if run.presence is None:
            _draw_tasks(axes, run)
        else:
            _draw_presence(figure, axes, np.array(run.presence, dtype=np.int64), run.task_starts)
            axes.set_xlabel("images so far")
            format_ticks(axes.xaxis, lambda x: f"{x:,.0f}")

    return Plot(
        name="stream",
        title=f"The stream, seed {seed}",
        alt=f"When each of {len(classes)} classes came, seed {seed}: {len(tasks)} tasks, one after the other.",
        draw=draw,
        height=0.75 * _height(len(classes)),
    )


def _height(classes: int) -> float:
    """Inches: one line of text per class where classes are named, one row of dots for up to a thousand of them."""
    return max(3.2, 0.2 * classes) if classes <= _MOST_NAMED_CLASSES else min(4 + classes / 160, 10)


def _axes(figure: Any, names: Sequence[str] | None) -> Any:
    """Classes as rows, named where there is room."""
    axes = figure.subplots()
    axes.grid(visible=False)
    axes.set_ylabel("classes, by task")
    if names is not None and len(names) <= _MOST_NAMED_CLASSES:
        axes.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=8)
    return axes


def _draw_presence(figure: Any, axes: Any, counts: NDArray[np.int64], task_starts: Sequence[int]) -> None:
    """The colour is a class's share of its stretch of time; where it has no sample, the paper stays white."""
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
        extent=(0, int(counts.sum()), len(counts), 0),
    )
    for start in task_starts[1:]:
        axes.axvline(start, color=INK, linewidth=0.5)
    extend = "max" if shares.max() > most else "neither"
    figure.colorbar(image, ax=axes, extend=extend, label="share of the samples then, %")


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


def task_sizes(run: RunFiles) -> list[int] | None:
    """How many images of each task the learner received, where the run recorded its times."""
    recorded = run.timing["tasks"] if run.timing else []
    return [task["train_images"] for task in recorded] if len(recorded) == run.config["protocol"]["tasks"] else None
