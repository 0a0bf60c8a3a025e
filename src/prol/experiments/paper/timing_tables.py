"""From finished runs to tables of times, parameters and growth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import ceil
from statistics import fmean

from prol.datasets.generated import TRAIN_SIZES
from prol.experiments.paper.carrying_out import Outcome
from prol.experiments.paper.printed import PrintedTable, read_printed
from prol.experiments.paper.scale import CHUNK
from prol.experiments.paper.tables import joined_row, pair, per_task_table, row_of
from prol.report.comparison import Content, RunFiles, Spread
from prol.report.sheet import Fit, Pair, SheetTable
from prol.runs.counting import count_parameters

ByTask = Callable[[RunFiles], Sequence[float | None]]


def _of_tasks(key: str) -> ByTask:
    return lambda run: [float(task[key]) for task in timing_of(run)["tasks"]]


PER_TASK: tuple[tuple[str, str, str, ByTask], ...] = (
    ("throughput", "Throughput", "images/s", _of_tasks("train_images_per_second")),
    ("training_time", "Training time", "s", _of_tasks("train_seconds")),
    ("inference_time", "Inference time after each task, all tasks so far", "s", _of_tasks("test_seconds")),
)
_MEANING = (
    "Times include the reading of images, and no checkpoints. Nothing else of this command was at work meanwhile."
)
_COMPILED = (
    "On a GPU parts of the network are compiled during the first two tasks, and that time counts: tens of seconds "
    "where the compiler has nothing stored yet, fewer where it has."
)


def _meaning(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """What the times are of."""
    on_a_gpu = any(str(run.config["device"]).startswith("cuda") for outcome in outcomes for run in outcome.runs)
    return (_MEANING, _COMPILED) if on_a_gpu else (_MEANING,)


def throughput_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Parameters and means over tasks, then every task."""
    timed = [outcome for outcome in outcomes if outcome.timed]
    if not timed:
        return []
    printed = read_printed("throughput")
    columns = (("parameters stored, M", "parameters", _stored), *_means())
    rows = tuple(
        row_of(
            outcome,
            [pair([read(run) for run in outcome.runs], printed, outcome.beside, key) for _, key, read in columns],
        )
        for outcome in timed
    )
    summary = SheetTable(
        name="throughput",
        title=f"Parameters, throughput and times, {timed[0].dataset} (beside the paper's ImageNet-R)",
        label=printed.label,
        columns=tuple(title for title, _, _ in columns),
        rows=rows,
        digits=(3, 2, 2, 2),
        notes=(*_meaning(timed), *_conventions(timed)),
    )
    return [summary, *per_task_time_tables(timed)]


def per_task_time_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Throughput, training and inference time of each task."""
    timed = [outcome for outcome in outcomes if outcome.timed]
    if not timed:
        return []
    return [
        per_task_table(
            f"{name}-per-task".replace("_", "-"),
            f"{title}, {timed[0].dataset} (beside the paper's ImageNet-R)",
            read_printed(f"{name}_imagenet_r"),
            timed,
            read,
            unit,
        )
        for name, title, unit, read in PER_TASK
    ]


def complexity_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Seconds of learning against the number of images, and seconds of a chunk against the task."""
    settings = sorted({outcome.setting for outcome in outcomes if outcome.setting is not None})
    images = {outcome.setting: run.config["dataset"]["train_images"] for outcome in outcomes for run in outcome.runs}
    known = [setting for setting in settings if setting in images]
    rows = []
    for name in dict.fromkeys(outcome.row for outcome in outcomes):
        own = {outcome.setting: outcome for outcome in outcomes if outcome.row == name}
        pairs = [_seconds(own[setting]) if setting in own else Pair() for setting in known]
        points = [
            (float(images[setting]), value)
            for setting, one in zip(known, pairs, strict=True)
            if one.ours
            for value in one.ours.values
        ]
        fit = Fit.through([x for x, _ in points], [y for _, y in points])
        rows.append(replace(joined_row(name, list(own.values()), pairs), fit=fit))
    growth = SheetTable(
        name="complexity-images",
        title="Seconds of learning against the number of images",
        label="",
        columns=tuple(f"{images[setting]:,} images" for setting in known),
        rows=tuple(rows),
        figure="fit",
        x=tuple(float(images[setting]) for setting in known),
        x_title="training images",
        y_title="seconds of learning",
        fit="s an image",
        notes=("The paper derives O(N) and prints no times for it.", *_meaning(outcomes)),
    )
    longest = [outcome for outcome in outcomes if outcome.setting == settings[-1]] if settings else []
    return [growth, chunk_table(longest)]


def chunk_table(outcomes: Sequence[Outcome]) -> SheetTable:
    """Seconds of a chunk in each task, and a line through them: its slope is what a further task adds."""
    printed = read_printed("training_time_imagenet_r")
    table = per_task_table(
        "complexity-chunks",
        "Seconds of a chunk in each task (the paper's: training time by chunks of ImageNet-R)",
        _by_chunks(printed),
        outcomes,
        seconds_of_chunks,
        "seconds a chunk",
        digits=4,
    )
    rows = []
    for row in table.rows:
        means = [one.ours.mean for one in row.pairs[:-1] if one.ours]
        # The first task warms the device up and trains more parts.
        rows.append(
            replace(row, fit=Fit.through(list(range(2, len(means) + 1)), means[1:]) if len(means) > 2 else None)
        )
    note = "The line is through the second task and later ones: the first also gets everything ready."
    return replace(table, rows=tuple(rows), fit="s a task", x_title="task", notes=(note,))


def timing_of(run: RunFiles) -> Content:
    """What a run of a reproduction always has."""
    assert run.timing is not None
    return run.timing


def seconds_of_chunks(run: RunFiles) -> list[float | None]:
    """Mean seconds of a chunk, by task."""
    chunk = run.config["protocol"]["chunk"]
    return [
        task["train_seconds"] / ceil(task["train_images"] / chunk) if task["train_images"] else None
        for task in timing_of(run)["tasks"]
    ]


def _by_chunks(printed: PrintedTable) -> PrintedTable:
    chunks = [ceil(size / CHUNK) for size in TRAIN_SIZES]
    rows: dict[str, tuple[float | None, ...]] = {}
    for row, values in printed.rows.items():
        each = [value / count for value, count in zip(values, chunks, strict=False) if value is not None]
        rows[row] = (*each, fmean(each))
    return PrintedTable(printed.label, printed.title, printed.columns, rows, {})


def _seconds(outcome: Outcome) -> Pair:
    values = [float(timing_of(run)["train_seconds"]) for run in outcome.runs]
    return Pair(Spread.of(values) if values else None)


def _stored(run: RunFiles) -> float:
    return float(run.result["footprint"]["parameters_stored"]["count"]) / 1e6


def _means() -> list[tuple[str, str, Callable[[RunFiles], float]]]:
    titles = (("images/s", "images/s"), ("training, s a task", "training s"), ("inference, s", "inference s"))
    return [
        (title, key, partial(_mean_over_tasks, read))
        for (title, key), (_, _, _, read) in zip(titles, PER_TASK, strict=True)
    ]


def _mean_over_tasks(read: ByTask, run: RunFiles) -> float:
    return fmean(value for value in read(run) if value is not None)


def _conventions(outcomes: Sequence[Outcome]) -> list[str]:
    """What is counted, and PROL by the paper's own way of counting."""
    said = [
        "Ours are parameters stored at the end, besides the frozen backbone and statistics; the paper counts RanDumb's "
        "random matrix, L2P's whole classifier, and PROL with the head of one task."
    ]
    for outcome in outcomes:
        for run in outcome.runs[:1]:
            config = run.config
            counts = count_parameters(
                config["method"],
                config["options"],
                config["backbone"]["name"],
                config["dataset"]["classes"],
                config["protocol"]["tasks"],
            )["paper_convention"]
            said += [f"{outcome.row}, {convention}: {count / 1e6:.3f} M." for convention, count in counts.items()]
    return said
