"""One run, and one at several arrival rates: tables and a plot, from the contents of their files alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table as RichTable

from prol.report.plot import BLUE, ORANGE, Plot, draw_matrix, whole_numbers
from prol.report.table import Table
from prol.runfiles import Content

MEASURES = {
    "FAA": "accuracy at the end, over all test images",
    "CAA": "mean of the accuracies after each task",
    "forgetting": "mean loss of old tasks from their best",
    "A_AUC": "mean accuracy at equally spaced points of the stream, on the classes seen so far",
}
"""The measures of a comparison with their definitions in a few words."""

_METRICS = {
    "faa": ("FAA", MEASURES["FAA"]),
    "caa": ("CAA", MEASURES["CAA"]),
    "forgetting": ("forgetting", f"{MEASURES['forgetting']}, last task included"),
    "bwt": ("BWT", "mean change of old tasks since they were learnt"),
    "faa_task_mean": ("FAA, task mean", "each task counting alike"),
    "caa_task_mean": ("CAA, task mean", "each task counting alike"),
    "forgetting_paper": ("forgetting, paper", "best taken before the last task; negative when old tasks gain"),
}
_ANYTIME = {
    "a_auc": ("A_AUC", MEASURES["A_AUC"]),
    "prequential": ("prequential", "training images predicted correctly before they were learnt"),
    "learning_curve_area": ("learning-curve area", "mean accuracy on a task over its first chunks"),
    "calibration_error": ("calibration error", "gap between confidence and accuracy at the end, 15 bins"),
}
_AMOUNTS = {
    "trained_now": "trained",
    "parameters_stored": "parameters stored",
    "statistics_stored": "statistics stored",
    "samples_stored": "samples stored",
}


def result_tables(config: Content, result: Content, timing: Content | None = None) -> RenderableType:
    """The whole result of a finished run."""
    parts: list[RenderableType] = [
        headline(config),
        _history_table(result),
        _metrics_table(result),
        footprint_table({"during the last task:": result["footprint"]}),
        _given_line(result["told"]),
    ]
    parts += [f"Note on the data: {note}" for note in config["dataset"].get("notes", [])]
    if result["clock"] is not None:
        parts.append(_clock_line(result["clock"]))
    skipped = result["skipped"]
    if skipped["train"] or skipped["test"]:
        parts.append(f"Unreadable images skipped: {skipped['train']} in training, {skipped['test']} in test.")
    if timing is not None:
        parts.append(_speed_line(timing))
    return Group(*parts)


def headline(config: Content) -> str:
    """The run in one line."""
    protocol, versions = config["protocol"], config["versions"]
    return (
        f"{config['method']} on {config['dataset']['name']}: {protocol['tasks']} tasks ({protocol['name']}), "
        f"chunks of {protocol['chunk']}, seed {config['seed']}, backbone {config['backbone']['name']} "
        f"{config['backbone']['sha256'][:12]}, {config['device']} {config['precision']}, prol {versions['prol']}"
    )


def _history_table(result: Content) -> RichTable:
    """One row per task: accuracies after it, and the accuracy on it at the end."""
    metrics = result["metrics"]
    histories = [metrics[name] for name in ("average_accuracy", "average_accuracy_task_mean", "forgetting_history")]
    rows = [
        [
            str(task + 1),
            str(len(result["task_classes"][task])),
            str(result["test_sizes"][task]),
            *(f"{history[task]:.2f}" for history in histories),
            f"{row[-1]:.2f}",
        ]
        for task, row in enumerate(result["accuracy_matrix"])
    ]
    titles = ("task", "classes", "test images", "all so far", "task mean", "forgetting", "this task at the end")
    return Table.of(titles, rows, "r" * len(titles), "After each task, in %").rich()


def _metrics_table(result: Content) -> RichTable:
    """Each measure with its definition in a few words."""
    rows = [[short, f"{result['metrics'][name]:.2f}", meaning] for name, (short, meaning) in _METRICS.items()]
    anytime = {name: value for name, value in result["anytime"].items() if name in _ANYTIME and value is not None}
    rows += [[short, f"{anytime[name]:.2f}", meaning] for name, (short, meaning) in _ANYTIME.items() if name in anytime]
    classes = result["class_accuracy"]
    if classes:
        worst, best = min(classes, key=classes.__getitem__), max(classes, key=classes.__getitem__)
        extremes = f"from {classes[worst]:.2f} ({worst}) to {classes[best]:.2f} ({best})"
        rows.append(["classes", f"{len(classes)}", extremes])
    return Table.of(("", "", ""), rows, "lrl", "Measures, in %").rich()


def footprint_table(footprints: Mapping[str, Content]) -> RichTable:
    """What a learner trains and stores, one pair of columns for each named moment."""
    rows = [
        [meaning, *(f"{one[name][unit]:,}" for one in footprints.values() for unit in ("count", "bytes"))]
        for name, meaning in _AMOUNTS.items()
    ]
    titles = ["", *(title for moment in footprints for title in (f"{moment} count", "bytes"))]
    return Table.of(titles, rows, caption="Footprint, besides frozen weights of the backbone").rich()


def _given_line(given: Content) -> str:
    """The information given to the learner besides images and labels, in one sentence."""
    how = given["preprocessing"]
    shown: dict[str, Any] = {
        **{name: ("yes" if value else "no") if isinstance(value, bool) else value for name, value in given.items()},
        "weights_sha256": given["weights_sha256"][:12],
        "preprocessing": f"{how['size']} px, {how['interpolation']}, crop {how['crop_pct']:g}, "
        f"mean {how['mean'][0]:g}, deviation {how['std'][0]:g}",
    }
    parts = [f"{name.replace('_', ' ')}: {value}" for name, value in shown.items() if value is not None]
    return f"Given to the learner: {', '.join(parts)}."


def _clock_line(clock: Content) -> str:
    """How a run kept up with data that did not wait."""
    return (
        f"On the clock: {clock['rate']:g} images/s arriving, {clock['keep']} chunks may wait; "
        f"{100 * clock['missed_share']:.1f} % of the images missed ({clock['missed_chunks']} chunks); "
        f"lag {1000 * clock['mean_lag']:.1f} ms on average, {1000 * clock['most_lag']:.1f} ms at most."
    )


def _speed_line(timing: Content) -> str:
    """Images per second; of testing only where each test image was computed each time."""
    testing = "testing with reused features (--inference-time measures it)"
    if not timing["test_features_reused"]:
        testing = f"{timing['test_images_per_second']:.1f} images/s testing"
    return (
        f"Speed: {timing['train_images_per_second']:.1f} images/s learning, {testing}; "
        f"{timing['train_seconds']:.1f} s and {timing['test_seconds']:.1f} s in all."
    )


def plot_run(config: Content, result: Content, file: Path) -> None:
    """Writes the accuracy history and the accuracy matrix of a finished run as PNG or SVG."""
    title, metrics = f"{config['method']} on {config['dataset']['name']}, seed {config['seed']}", result["metrics"]

    def draw(figure: Any) -> None:
        history, matrix = figure.subplots(1, 2)
        tasks = range(1, len(metrics["average_accuracy"]) + 1)
        for name, colour, style, label in (
            ("average_accuracy", BLUE, "o-", "all test images so far"),
            ("average_accuracy_task_mean", ORANGE, "s--", "mean over tasks"),
        ):
            history.plot(tasks, metrics[name], style, color=colour, label=label)
        history.set(xlabel="after task", ylabel="accuracy, %", ylim=(0, 101), title=f"FAA {metrics['faa']:.2f} %")
        whole_numbers(history.xaxis)
        history.legend(loc="lower left")
        values = np.asarray(result["accuracy_matrix"], dtype=np.float64)
        draw_matrix(figure, matrix, values=values, colour_bar=True)
        matrix.set_title("accuracy matrix, %")

    Plot(title, draw, 4.2, width=11).write(file)


def rate_table(points: Sequence[Content]) -> RichTable:
    """One row per rate of a `curve.json`."""
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
    """Accuracy and missed images against the arrival rate; the dotted line is the accuracy when data wait."""
    timed = [point for point in points if point["rate"] is not None]
    rates = [point["rate"] for point in timed]

    def draw(figure: Any) -> None:
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
        axes.legend(loc="best")

    Plot(title, draw, 4.2, width=7).write(file)
