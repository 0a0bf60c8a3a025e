"""Tables of times from finished runs: of each task, and how they grow with images and with tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import fmean

from prol.data.builtin import TRAIN_SIZES
from prol.paper.grid import Outcome
from prol.paper.scale import CHUNK
from prol.paper.tables import PrintedTable, pair, per_task_table, read_printed, row_of
from prol.report.sheet import Fit, Pair, SheetTable
from prol.report.table import Spread
from prol.runfiles import Content, RunFiles
from prol.runs.inspection import count_parameters

READY = 2
"""Warm-up tasks: a GPU compiles, and the first task trains more parts."""

_MEANING = (
    "Times include the reading of images, but no checkpoints. Nothing else of this command was running meanwhile."
)
_COMPILED = (
    "On a GPU compiling counts, tens of seconds where the compiler has nothing stored yet, fewer where it has: that of "
    "learning in the first two tasks, that of tests in the first one and where further sizes of batches come."
)
_COUNTED = (
    "Ours are parameters stored at the end, besides the frozen backbone and statistics; the paper counts RanDumb's "
    "random matrix, L2P's whole classifier, and PROL with the head of one task."
)


@dataclass(frozen=True)
class _Time:
    """A measure of each task: its key in `timing.json`, and its mean as a column of ours and of the paper's."""

    key: str
    name: str
    title: str
    unit: str
    column: str
    printed: str

    def by_task(self, run: RunFiles) -> list[float]:
        return [float(task[self.key]) for task in _timing(run)["tasks"]]

    def mean(self, run: RunFiles) -> float:
        return fmean(self.by_task(run))


_TIMES = (
    _Time("train_images_per_second", "throughput", "Throughput", "images/s", "images/s", "images/s"),
    _Time("train_seconds", "training_time", "Training time", "s", "training, s a task", "training s"),
    _Time(
        "test_seconds",
        "inference_time",
        "Inference time after each task, all tasks so far",
        "s",
        "inference, s",
        "inference s",
    ),
)


def throughput_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Parameters and means over tasks, then every task."""
    timed = [outcome for outcome in outcomes if outcome.timed]
    if not timed:
        return []
    printed = read_printed("throughput")
    columns: list[tuple[str, str, Callable[[RunFiles], float]]] = [
        ("parameters stored, M", "parameters", _stored),
        *((time.column, time.printed, time.mean) for time in _TIMES),
    ]
    rows = []
    for outcome in timed:
        pairs = [pair([read(run) for run in outcome.runs], printed, outcome.beside, key) for _, key, read in columns]
        rows.append(row_of(outcome.row, [outcome], pairs))
    summary = SheetTable(
        name="throughput",
        title=f"Parameters, throughput and times, {timed[0].dataset} (beside the paper's ImageNet-R)",
        label=printed.label,
        columns=tuple(title for title, _, _ in columns),
        rows=tuple(rows),
        digits=(3, 2, 2, 2),
        notes=(*_meaning(timed), _COUNTED, *_by_convention(timed)),
    )
    return [summary, *per_task_time_tables(timed)]


def per_task_time_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Throughput, training and inference time of each task."""
    timed = [outcome for outcome in outcomes if outcome.timed]
    return [
        per_task_table(
            f"{time.name}-per-task".replace("_", "-"),
            f"{time.title}, {timed[0].dataset} (beside the paper's ImageNet-R)",
            read_printed(f"{time.name}_imagenet_r"),
            timed,
            time.by_task,
            time.unit,
        )
        for time in (_TIMES if timed else ())
    ]


def complexity_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Seconds of learning against the number of images, with and without warm-up, and per chunk by task."""

    def all_tasks(run: RunFiles) -> tuple[int, float]:
        return run.config["dataset"]["train_images"], float(_timing(run)["train_seconds"])

    def later(run: RunFiles) -> tuple[int, float]:
        tasks = _timing(run)["tasks"][READY:]
        return sum(task["train_images"] for task in tasks), sum(float(task["train_seconds"]) for task in tasks)

    title = "Seconds of learning against the number of images"
    notes = ("The paper derives O(N) and prints no times for it.", *_meaning(outcomes))
    tables = [_growth_table("complexity-images", title, outcomes, all_tasks, notes)]
    runs = [run for outcome in outcomes for run in outcome.runs]
    if runs and all(len(_timing(run)["tasks"]) > READY for run in runs):
        notes = ("The same runs without the two tasks in which a learner gets ready.",)
        tables.append(_growth_table("complexity-later", f"{title}, from the third task on", outcomes, later, notes))
    settings = [outcome.setting for outcome in outcomes if outcome.setting is not None]
    return [*tables, _chunk_table([outcome for outcome in outcomes if settings and outcome.setting == max(settings)])]


def _growth_table(
    name: str,
    title: str,
    outcomes: Sequence[Outcome],
    measure: Callable[[RunFiles], tuple[int, float]],
    notes: tuple[str, ...],
) -> SheetTable:
    """A column for each number of images; `measure` returns a run's images and seconds."""
    images = {outcome.setting: measure(run)[0] for outcome in outcomes for run in outcome.runs}
    known = sorted(setting for setting in images if setting is not None)
    rows = []
    for row in dict.fromkeys(outcome.row for outcome in outcomes):
        own = {outcome.setting: outcome for outcome in outcomes if outcome.row == row}
        seconds = [[measure(run)[1] for run in own[one].runs] if one in own else [] for one in known]
        points = [(float(images[one]), value) for one, values in zip(known, seconds, strict=True) for value in values]
        pairs = [Pair(Spread.of(values) if values else None) for values in seconds]
        fit = Fit.through([x for x, _ in points], [y for _, y in points])
        rows.append(replace(row_of(row, list(own.values()), pairs), fit=fit))
    return SheetTable(
        name=name,
        title=title,
        label="",
        columns=tuple(f"{images[one]:,} images" for one in known),
        rows=tuple(rows),
        figure="fit",
        x=tuple(float(images[one]) for one in known),
        x_title="training images",
        y_title="seconds of learning",
        fit="s an image",
        notes=notes,
    )


def _chunk_table(outcomes: Sequence[Outcome]) -> SheetTable:
    """Seconds per chunk in each task, and a line through them: its slope is what a further task adds."""
    table = per_task_table(
        "complexity-chunks",
        "Seconds of a chunk in each task (the paper's: training time by chunks of ImageNet-R)",
        _by_chunks(read_printed("training_time_imagenet_r")),
        outcomes,
        _seconds_of_chunks,
        "seconds a chunk",
        digits=4,
    )
    rows = []
    for row in table.rows:
        means = [one.ours.mean for one in row.pairs[:-1] if one.ours]
        rows.append(replace(row, fit=Fit.through(list(range(READY + 1, len(means) + 1)), means[READY:])))
    note = "The line is through the third task and later ones: in the first two everything gets ready."
    return replace(table, rows=tuple(rows), fit="s a task", x_title="task", notes=(note,))


def _seconds_of_chunks(run: RunFiles) -> list[float | None]:
    """Mean seconds per chunk, by task."""
    chunk = run.config["protocol"]["chunk"]
    return [
        task["train_seconds"] / ceil(task["train_images"] / chunk) if task["train_images"] else None
        for task in _timing(run)["tasks"]
    ]


def _by_chunks(printed: PrintedTable) -> PrintedTable:
    chunks = [ceil(size / CHUNK) for size in TRAIN_SIZES]
    rows: dict[str, tuple[float | None, ...]] = {}
    for row, values in printed.rows.items():
        each = [value / count for value, count in zip(values, chunks, strict=False) if value is not None]
        rows[row] = (*each, fmean(each))
    return replace(printed, rows=rows, slips={})


def _timing(run: RunFiles) -> Content:
    """The times, which every run of a reproduction has."""
    assert run.timing is not None
    return run.timing


def _stored(run: RunFiles) -> float:
    return float(run.result["footprint"]["parameters_stored"]["count"]) / 1e6


def _meaning(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    on_a_gpu = any(str(run.config["device"]).startswith("cuda") for outcome in outcomes for run in outcome.runs)
    return (_MEANING, _COMPILED) if on_a_gpu else (_MEANING,)


def _by_convention(outcomes: Sequence[Outcome]) -> list[str]:
    """The parameters of PROL as the paper counts them."""
    said = []
    for outcome in outcomes:
        for run in outcome.runs[:1]:
            config, classes, tasks = run.config, run.config["dataset"]["classes"], run.config["protocol"]["tasks"]
            network = config["backbone"]["name"]
            counted = count_parameters(config["method"], config["options"], network, classes, tasks)
            counts = counted["paper_convention"].items()
            said += [f"{outcome.row}, {convention}: {count / 1e6:.3f} M." for convention, count in counts]
    return said
