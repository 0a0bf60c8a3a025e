"""A run as one picture: how accuracy went, and which task was known when."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prol.report.figures import BLUE, COLOUR_MAP, ORANGE, check_figure_file, require_matplotlib

_MOST_NUMBERED_TASKS = 20


def plot_run(config: Mapping[str, Any], result: Mapping[str, Any], file: Path) -> None:
    """Writes the accuracy history and the accuracy matrix of a finished run as PNG or SVG."""
    check_figure_file(file)
    figure_kind = require_matplotlib()
    figure = figure_kind(figsize=(11, 4.2), layout="constrained")
    history, matrix = figure.subplots(1, 2)
    _draw_history(history, result["metrics"])
    _draw_matrix(figure, matrix, result["accuracy_matrix"])
    figure.suptitle(f"{config['method']} on {config['dataset']['name']}, seed {config['seed']}")
    figure.savefig(file, dpi=150)


def _draw_history(axes: Any, metrics: Mapping[str, Any]) -> None:
    tasks = range(1, len(metrics["average_accuracy"]) + 1)
    axes.plot(tasks, metrics["average_accuracy"], color=BLUE, marker="o", label="all test images so far")
    axes.plot(
        tasks, metrics["average_accuracy_task_mean"], color=ORANGE, marker="s", linestyle="--", label="mean over tasks"
    )
    axes.set(xlabel="after task", ylabel="accuracy, %", ylim=(0, 101), title=f"FAA {metrics['faa']:.2f} %")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left")


def _draw_matrix(figure: Any, axes: Any, accuracy: list[list[float]]) -> None:
    values = np.asarray(accuracy, dtype=np.float64)
    row, column = np.indices(values.shape)
    image = axes.imshow(np.ma.masked_where(row > column, values), cmap=COLOUR_MAP, vmin=0, vmax=100)
    axes.set(xlabel="after task", ylabel="test images of task", title="accuracy matrix, %")
    ticks = np.unique(np.linspace(0, len(values) - 1, min(len(values), 10)).astype(int))
    axes.set_xticks(ticks, ticks + 1)
    axes.set_yticks(ticks, ticks + 1)
    if len(values) <= _MOST_NUMBERED_TASKS:
        for task, after in zip(*np.nonzero(row <= column), strict=True):
            colour = "black" if values[task, after] > 50 else "white"
            axes.text(after, task, f"{values[task, after]:.0f}", ha="center", va="center", color=colour, fontsize=8)
    figure.colorbar(image, ax=axes)
