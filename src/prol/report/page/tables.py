"""What a section says in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from prol.report.comparison import Row, Spread
from prol.report.page.found import ReadRun
from prol.report.page.sections import Section
from prol.report.page.table import NOT_KNOWN, Cell, Table, number, size, spread, words, yes
from prol.report.page.wording import printable, shown

BESIDE = "*"


def comparison(section: Section) -> Table:
    """One row a method, best first."""
    measures = ["FAA", "CAA", "forgetting"]
    anytime = any(row.a_auc for row in section.rows)
    if anytime:
        measures.append("A_AUC")
    rows = []
    for row in section.rows:
        spreads = [row.faa, row.caa, row.forgetting, *([row.a_auc] if anytime else [])]
        samples = row.footprint["samples_stored"]
        rows.append(
            [
                words(row.name),
                *map(spread, spreads),
                size(samples["count"], "", "none"),
                size(samples["bytes"], "B", "0 B"),
                size(row.bytes_kept, "B", "0 B"),
                speed(row),
                words(", ".join(map(str, row.seeds))),
            ]
        )
    return Table(
        "comparison",
        "Best final accuracy first; in %, mean ± sample deviation over seeds",
        ["method", *measures, "samples kept", "their bytes", "bytes kept", "images/s", "seeds"],
        rows,
        spreads=measures,
    )


def speed(row: Row) -> Cell:
    """Images a second while learning, with a star where other runs were at work beside it."""
    value = row.images_per_second
    if value is None:
        return number(None)
    return Cell(f"{value:,.{0 if value >= 10 else 1}f}{BESIDE if row.side_by_side else ''}", value)


def history(section: Section, name: str, caption: str, metric: str) -> Table:
    """A measure after each task, one row a method."""
    tasks = len(section.rows[0].history)
    titles = [f"task {task + 1}" for task in range(tasks)]
    rows = [
        [words(row.name), *(spread(value) for value in history_of(section.runs_of[row.name], metric))]
        for row in section.rows
    ]
    return Table(name, caption, ["method", *titles], rows, spreads=titles)


def history_of(runs: Sequence[ReadRun], metric: str) -> list[Spread]:
    """A measure after each task over the seeds."""
    return list(map(Spread.of, zip(*(run.files.result["metrics"][metric] for run in runs), strict=True)))


def memory(section: Section) -> Table:
    """What is kept by its kind."""
    kinds = ("parameters_stored", "statistics_stored", "samples_stored")
    rows = [
        [
            words(row.name),
            *(size(row.footprint[kind]["bytes"], "B", "0 B") for kind in kinds),
            size(row.bytes_kept, "B", "0 B"),
            size(row.footprint["trained_now"]["count"], ""),
        ]
        for row in section.rows
    ]
    titles = ["method", "parameters", "statistics", "samples", "all kept", "trained now"]
    return Table("memory", "Bytes kept during the last task, and how many parameters were trained then", titles, rows)


def throughput(section: Section) -> Table | None:
    """Images and seconds; None where no run wrote its times."""
    rows = []
    for row in section.rows:
        times = [run.files.timing for run in section.runs_of[row.name] if run.files.timing is not None]
        if times:
            tested = [time["test_images_per_second"] for time in times if time.get("test_images_per_second")]
            rows.append(
                [
                    words(row.name),
                    speed(row),
                    number(_mean(times, "train_seconds"), 1),
                    number(fmean(tested), 0) if tested else Cell("reused", None),
                    number(_mean(times, "test_seconds"), 1),
                ]
            )
    titles = ["method", "images/s learning", "seconds learning", "images/s testing", "seconds testing"]
    return Table("throughput", "Speed, mean over seeds", titles, rows) if rows else None


def _mean(times: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [time[name] for time in times if isinstance(time.get(name), int | float)]
    return fmean(values) if values else None


def tasks(section: Section) -> Table:
    """What each task of the drawn stream brings."""
    files = section.first.files
    sizes = task_sizes(section.first)
    rows = [
        [
            words(task + 1),
            Cell(str(len(classes)), len(classes)),
            number(sizes[task], 0) if sizes else number(None),
            number(files.result["test_sizes"][task], 0),
            words(", ".join(map(printable, classes))),
        ]
        for task, classes in enumerate(files.result["task_classes"])
    ]
    titles = ["task", "classes", "training images", "test images", "their names"]
    return Table("tasks", f"Tasks, seed {files.config['seed']}", titles, rows, words=["their names"])


def task_sizes(run: ReadRun) -> list[int] | None:
    """How many images each task brought to the learner, where the run wrote its times."""
    written = (run.files.timing or {}).get("tasks") or []
    if len(written) != len(run.files.result["task_classes"]):
        return None
    return [int(task["train_images"]) for task in written]


def told(section: Section) -> Table:
    """What each learner knew or kept besides images and labels."""
    facts = {
        "task_boundaries": "task boundaries",
        "classes_of_next_task": "classes of next task",
        "task_identity_in_training": "task while learning",
        "task_identity_at_test": "task at test",
        "number_of_classes": "number of classes",
    }
    rows = []
    for row in section.rows:
        said = section.runs_of[row.name][0].files.result["told"]
        rows.append(
            [
                words(row.name),
                *(yes(said.get(fact)) for fact in facts),
                words(printable(said.get("passes_over_the_data", NOT_KNOWN))),
                size(row.footprint["samples_stored"]["count"], "", "none"),
            ]
        )
    titles = ["method", *facts.values(), "passes over the data", "samples kept"]
    return Table("told", "Told to each learner besides images and labels", titles, rows, words=titles[1:-1])


def stream_settings(section: Section) -> Table:
    """What all runs of the section have in common."""
    config = section.first.files.config
    data, protocol, backbone = config["dataset"], config["protocol"], config["backbone"]
    how = config.get("preprocessing") or {}
    versions = [run.files.config.get("versions") or {} for runs in section.runs_of.values() for run in runs]
    facts = {
        "data set": data["name"],
        "classes": data.get("classes"),
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
        [words(name), words(printable(value if isinstance(value, str) else shown(value)))]
        for name, value in facts.items()
        if value not in (None, "")
    ]
    return Table("settings", "The same for all runs", ["setting", "value"], rows, words=["value"])


def method_settings(section: Section) -> Table:
    """Which method each row is, with which options, and where its runs lie."""
    rows = []
    for row in section.rows:
        runs = section.runs_of[row.name]
        places = ", ".join(printable(run.place) for run in runs)
        options = printable(_options(row.options) or "none")
        rows.append([words(row.name), words(printable(row.method)), words(options), words(places)])
    titles = ["row", "method", "options", "runs"]
    return Table("options", "Method and options of each row, all of them", titles, rows, words=titles[1:])


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in options.items())
