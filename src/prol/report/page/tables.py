"""The tables of a section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

from prol.report.comparison import speed
from prol.report.page.sections import Section, shown
from prol.report.stream_plot import task_sizes
from prol.report.table import NOT_KNOWN, Cell, Spread, Table, number, printable, size, spread, text, yes
from prol.runfiles import STORED, RunFiles

History = Literal["average_accuracy", "forgetting_history"]

_GIVEN = {
    "task_boundaries": "task boundaries",
    "classes_of_next_task": "classes of next task",
    "task_identity_in_training": "task while learning",
    "task_identity_at_test": "task at test",
    "number_of_classes": "number of classes",
}


def comparison(section: Section) -> Table:
    """One row per method, best first."""
    anytime = any(row.a_auc for row in section.rows)
    measures = ["FAA", "CAA", "forgetting"] + ["A_AUC"] * anytime
    rows = []
    for row in section.rows:
        samples = row.footprint["samples_stored"]
        rows.append(
            [
                text(row.name),
                *map(spread, [row.faa, row.caa, row.forgetting] + [row.a_auc] * anytime),
                size(samples["count"], "", "none"),
                size(samples["bytes"], "B", "0 B"),
                size(row.bytes_kept, "B", "0 B"),
                speed(row),
                text(", ".join(map(str, row.seeds))),
            ]
        )
    return Table(
        ["method", *measures, "samples stored", "their bytes", "bytes stored", "images/s", "seeds"],
        rows,
        f"l{'s' * len(measures)}rrrrr",
        "Best final accuracy first; in %, mean ± sample deviation over seeds",
        "comparison",
        csv_columns=["method", *measures, "samples stored", "their bytes", "bytes stored", "images/s", "seeds"],
    )


def history(section: Section, name: str, caption: str, metric: History) -> Table:
    """A measure after each task, one row per method."""
    titles = [f"task {task + 1}" for task in range(len(section.rows[0].history))]
    rows = [[text(row.name), *map(spread, history_of(section.runs_of[row.name], metric))] for row in section.rows]
    return Table(["method", *titles], rows, f"l{'s' * len(titles)}", caption, name)


def history_of(runs: Sequence[RunFiles], metric: History) -> list[Spread]:
    """A measure after each task over the seeds."""
    return list(map(Spread.of, zip(*(run.result["metrics"][metric] for run in runs), strict=True)))


def memory(section: Section) -> Table:
    """Stored state by its kind."""
    rows = [
        [
            text(row.name),
            *(size(row.footprint[kind]["bytes"], "B", "0 B") for kind in STORED),
            size(row.bytes_kept, "B", "0 B"),
            size(row.footprint["trained_now"]["count"], ""),
        ]
        for row in section.rows
    ]
    titles = ["method", "parameters", "statistics", "samples", "all stored", "trained now"]
    caption = "Bytes stored during the last task, and how many parameters were trained then"
    csv_columns = ["method", "parameters", "statistics", "samples", "all stored", "trained now"]
    return Table(titles, rows, caption=caption, name="memory", csv_columns=csv_columns)


def throughput(section: Section) -> Table | None:
    """Images and seconds; None where no run recorded its times."""
    rows = []
    for row in section.rows:
        times = [run.timing for run in section.runs_of[row.name] if run.timing is not None]
        if times:
            tested = [rate for time in times if (rate := time.get("test_images_per_second"))]
            rows.append(
                [
                    text(row.name),
                    speed(row),
                    number(fmean(time["train_seconds"] for time in times), 1),
                    number(fmean(tested), 0) if tested else Cell("reused"),
                    number(fmean(time["test_seconds"] for time in times), 1),
                ]
            )
    titles = ["method", "images/s learning", "seconds learning", "images/s testing", "seconds testing"]
    return Table(titles, rows, caption="Speed, mean over seeds", name="throughput") if rows else None


def tasks(section: Section) -> Table:
    """Classes and images of each task of the stream that is drawn."""
    result, sizes = section.first.result, task_sizes(section.first)
    rows = [
        [
            text(task + 1),
            Cell(str(len(classes)), len(classes)),
            number(sizes[task] if sizes else None, 0),
            number(result["test_sizes"][task], 0),
            text(", ".join(map(printable, classes))),
        ]
        for task, classes in enumerate(result["task_classes"])
    ]
    titles = ["task", "classes", "training images", "test images", "their names"]
    return Table(titles, rows, "lrrrl", f"Tasks, seed {section.first.config['seed']}", "tasks")


def given(section: Section) -> Table:
    """The information given to each learner besides images and labels, and the samples it stored."""
    rows = []
    for row in section.rows:
        facts: Mapping[str, Any] = section.runs_of[row.name][0].result["told"]
        passes = facts.get("passes_over_the_data")
        rows.append(
            [
                text(row.name),
                *(yes(facts.get(fact)) for fact in _GIVEN),
                text(NOT_KNOWN if passes is None else passes),
                size(row.footprint["samples_stored"]["count"], "", "none"),
            ]
        )
    titles = ["method", *_GIVEN.values(), "passes over the data"]
    kinds = "l" * len(titles) + "r"
    caption = "Information given to each learner besides images and labels"
    csv_columns = [*titles, "samples stored"]
    return Table([*titles, "samples stored"], rows, kinds, caption, "told", csv_columns)


def stream_settings(section: Section) -> Table:
    """The settings that all runs of the section share."""
    config = section.first.config
    data, protocol, backbone = config["dataset"], config["protocol"], config["backbone"]
    how = config.get("preprocessing")
    versions: list[Mapping[str, Any]] = [run.config["versions"] for runs in section.runs_of.values() for run in runs]
    facts = {
        "data set": data["name"],
        "classes": data["classes"],
        "training images": data["train_images"],
        "test images": data["test_images"],
        "development split": data.get("development", False),
        "at most of a class": data.get("limit_per_class"),
        "hash of the labels": data.get("labels_sha256"),
        "licence of the data": data.get("licence"),
        "protocol": protocol["name"],
        "its options": _options(protocol["options"]),
        "tasks": protocol["tasks"],
        "chunk": protocol["chunk"],
        "order of classes": protocol["class_order"],
        "data that do not wait": _options(config["clock"] or {}),
        "backbone": backbone["name"],
        "hash of its weights": backbone["sha256"],
        "its input": f"{how['size']} px, {how['interpolation']}, crop {how['crop_pct']}" if how else None,
        "device, precision": f"{config['device']}, {config['precision']}",
        **{
            f"version of {name}": ", ".join(sorted({str(one[name]) for one in versions if name in one}))
            for name in dict.fromkeys(name for one in versions for name in one)
        },
    }
    rows = [
        [text(printable(name)), text(printable(value if isinstance(value, str) else shown(value)))]
        for name, value in facts.items()
        if value not in (None, "")
    ]
    return Table(["setting", "value"], rows, "ll", "The same for all runs", "settings")


def method_settings(section: Section) -> Table:
    """The method and options of each row, and where its runs are."""
    rows = []
    for row in section.rows:
        places = ", ".join(printable(run.path) for run in section.runs_of[row.name])
        options = printable(_options(row.options) or "none")
        rows.append([text(row.name), text(printable(row.method)), text(options), text(places)])
    titles = ["row", "method", "options", "runs"]
    return Table(titles, rows, "llll", "Method and options of each row, all of them", "options")


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in options.items())
