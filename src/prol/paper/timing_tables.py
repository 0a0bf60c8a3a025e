"""Tables of times and parameters from finished runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

from prol.paper.grid import Outcome
from prol.paper.printed import read_printed
from prol.paper.tables import pair, per_task_table, row_of
from prol.report.sheet import SheetTable
from prol.runfiles import Content, RunFiles
from prol.runs.inspection import count_parameters

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
    "On a GPU compiling counts, tens of seconds where the compiler has nothing stored yet, fewer where it has: that of "
    "learning in the first two tasks, that of tests in the first one and where further sizes of batches come."
)


def meaning(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """What the times include."""
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
        notes=(*meaning(timed), *_conventions(timed)),
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


def timing_of(run: RunFiles) -> Content:
    """The times, which every run of a reproduction has."""
    assert run.timing is not None
    return run.timing


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
    """What is counted, and PROL by the paper's convention."""
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
