"""A run's result as tables, from the contents of its files alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table

Content = Mapping[str, Any]

_METRICS = {
    "faa": ("FAA", "accuracy at the end, over all test images"),
    "caa": ("CAA", "mean of the accuracies after each task"),
    "forgetting": ("forgetting", "mean loss of old tasks from their best, last task included"),
    "bwt": ("BWT", "mean change of old tasks since they were learnt"),
    "faa_task_mean": ("FAA, task mean", "each task counting alike"),
    "caa_task_mean": ("CAA, task mean", "each task counting alike"),
    "forgetting_paper": ("forgetting, paper", "best taken before the last task; negative when old tasks gain"),
}

_ANYTIME = {
    "a_auc": ("A_AUC", "mean accuracy at equally spaced points of the stream, on the classes that had come"),
    "prequential": ("prequential", "training images predicted rightly before they were learnt"),
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
    """Everything a finished run has to say."""
    parts: list[RenderableType] = [
        headline(config),
        history_table(result),
        metrics_table(result),
        footprint_table({"during the last task:": result["footprint"]}),
        told_line(result["told"]),
    ]
    parts += [f"Note on the data: {note}" for note in config["dataset"].get("notes", [])]
    if result["clock"] is not None:
        parts.append(clock_line(result["clock"]))
    skipped = result["skipped"]
    if skipped["train"] or skipped["test"]:
        parts.append(f"Unreadable images skipped: {skipped['train']} in training, {skipped['test']} in test.")
    if timing is not None:
        parts.append(speed_line(timing))
    return Group(*parts)


def headline(config: Content) -> str:
    """What was run, in one line."""
    protocol, versions = config["protocol"], config["versions"]
    return (
        f"{config['method']} on {config['dataset']['name']}: {protocol['tasks']} tasks ({protocol['name']}), "
        f"chunks of {protocol['chunk']}, seed {config['seed']}, backbone {config['backbone']['name']} "
        f"{config['backbone']['sha256'][:12]}, {config['device']} {config['precision']}, prol {versions['prol']}"
    )


def history_table(result: Content) -> Table:
    """One row a task: what was known after it, and what is left of it at the end."""
    table = Table(box=SIMPLE, title="After each task, in %", title_justify="left")
    for name in ("task", "classes", "test images", "all so far", "task mean", "forgetting", "this task at the end"):
        table.add_column(name, justify="right")
    metrics = result["metrics"]
    for task, row in enumerate(result["accuracy_matrix"]):
        table.add_row(
            str(task + 1),
            str(len(result["task_classes"][task])),
            str(result["test_sizes"][task]),
            f"{metrics['average_accuracy'][task]:.2f}",
            f"{metrics['average_accuracy_task_mean'][task]:.2f}",
            f"{metrics['forgetting_history'][task]:.2f}",
            f"{row[-1]:.2f}",
        )
    return table


def metrics_table(result: Content) -> Table:
    """Each measure with its definition in a few words."""
    table = Table(box=SIMPLE, title="Measures, in %", title_justify="left", show_header=False)
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify)
    for name, (short, meaning) in _METRICS.items():
        table.add_row(short, f"{result['metrics'][name]:.2f}", meaning)
    for name, (short, meaning) in _ANYTIME.items():
        if result["anytime"][name] is not None:
            table.add_row(short, f"{result['anytime'][name]:.2f}", meaning)
    classes = result["class_accuracy"]
    if classes:
        worst, best = min(classes, key=classes.__getitem__), max(classes, key=classes.__getitem__)
        table.add_row(
            "classes", f"{len(classes)}", f"from {classes[worst]:.2f} ({worst}) to {classes[best]:.2f} ({best})"
        )
    return table


def footprint_table(footprints: Mapping[str, Content]) -> Table:
    """What a learner trains and keeps, one column pair for each named moment."""
    table = Table(box=SIMPLE, title="Footprint, besides frozen weights of the backbone", title_justify="left")
    table.add_column("")
    for moment in footprints:
        table.add_column(f"{moment} count", justify="right")
        table.add_column("bytes", justify="right")
    for name, meaning in _AMOUNTS.items():
        amounts = [footprint[name] for footprint in footprints.values()]
        table.add_row(meaning, *(f"{amount[unit]:,}" for amount in amounts for unit in ("count", "bytes")))
    return table


def told_line(told: Content) -> str:
    """What the learner knew besides images and labels, as one sentence."""
    how = told["preprocessing"]
    words = {
        "weights_sha256": told["weights_sha256"][:12],
        "preprocessing": f"{how['size']} px, {how['interpolation']}, crop {how['crop_pct']:g}, "
        f"mean {how['mean'][0]:g}, deviation {how['std'][0]:g}",
    }
    parts = [
        f"{name.replace('_', ' ')}: {words.get(name, ('yes' if value else 'no') if isinstance(value, bool) else value)}"
        for name, value in told.items()
        if value is not None
    ]
    return f"Told to the learner: {', '.join(parts)}."


def clock_line(clock: Content) -> str:
    """How a run kept up with data that did not wait."""
    return (
        f"On the clock: {clock['rate']:g} images/s arriving, {clock['keep']} chunks may wait; "
        f"{100 * clock['missed_share']:.1f} % of the images missed ({clock['missed_chunks']} chunks); "
        f"lag {1000 * clock['mean_lag']:.1f} ms on average, {1000 * clock['most_lag']:.1f} ms at most."
    )


def speed_line(timing: Content) -> str:
    """Images a second; of testing only where each test image was computed anew."""
    testing = "testing with reused features (--inference-time measures it)"
    if not timing["test_features_reused"]:
        testing = f"{timing['test_images_per_second']:.1f} images/s testing"
    return (
        f"Speed: {timing['train_images_per_second']:.1f} images/s learning, {testing}; "
        f"{timing['train_seconds']:.1f} s and {timing['test_seconds']:.1f} s in all."
    )
