"""What the paper prints, with its known errors, and tables of accuracies from finished runs beside it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from prol.paper.grid import Outcome
from prol.report.sheet import Pair, SheetRow, SheetTable
from prol.report.table import Spread
from prol.runfiles import RunFiles

DATASETS = ("cifar100", "imagenet_r", "imagenet_a", "cub200")
MEASURES = ("FAA", "CAA", "FM")
PER_TASK = (*(str(task) for task in range(1, 11)), "AVG")
"""The columns of tables that name none."""


@dataclass(frozen=True)
class Printed:
    """One number of the paper; `slip` describes its error, if it is known to have one."""

    value: float
    slip: str | None = None


@dataclass(frozen=True)
class PrintedTable:
    """A table as printed: its label in the paper's source, and numbers by row and column; None where it has a dash."""

    label: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]
    slips: Mapping[tuple[str, str], str]

    def find(self, row: str | None, column: str) -> Printed | None:
        """The number there; None where the paper has no such row or column, or a dash."""
        if row is None or row not in self.rows or column not in self.columns:
            return None
        value = self.rows[row][self.columns.index(column)]
        return None if value is None else Printed(value, self.slips.get((row, column)))


@cache
def printed_tables() -> dict[str, Any]:
    """The content of `printed.json`, by the names of tables."""
    content: dict[str, Any] = json.loads((files("prol.paper") / "printed.json").read_text(encoding="utf-8"))
    return content


@cache
def read_printed(name: str) -> PrintedTable:
    """A table by its name.

    >>> read_printed("main").find("PROL", "cifar100 FAA")
    Printed(value=86.32, slip=None)
    """
    content = printed_tables()[name]
    return PrintedTable(
        label=content["label"],
        columns=tuple(content.get("columns", PER_TASK)),
        rows={row: tuple(values) for row, values in content["rows"].items()},
        slips={(slip["row"], slip["column"]): slip["note"] for slip in content.get("slips", [])},
    )


ByTask = Callable[[RunFiles], Sequence[float | None]]

_HISTORIES: dict[str, ByTask] = {
    "accuracy": lambda run: run.metrics["average_accuracy"],
    # After the first task nothing can have been forgotten.
    "forgetting": lambda run: [None, *run.metrics["forgetting_history"][1:]],
}

_TITLES = {"cifar100": "CIFAR-100", "imagenet_r": "ImageNet-R", "imagenet_a": "ImageNet-A", "cub200": "CUB-200"}
_DEFINITIONS = (
    "In %, by the published code's definitions: FAA and CAA count every test image alike, FM takes the best accuracy "
    "up to now. Ours as mean ± sample deviation over seeds."
)
_COPIED = (
    "The paper copied all rows but PROL's from another paper. They are of classes in an order drawn by the seed, so "
    "here too; PROL's are by label."
)
_FINE_TUNED = (
    "FT is not defined in the paper. Here its rows train a head and the LayerNorms without prompts; `whole network` "
    "trains all weights (`finetune`)."
)
_KEYS = {"FAA": "faa", "CAA": "caa", "FM": "forgetting"}


@dataclass(frozen=True)
class MeasuredTables:
    """Tables with one column per measure and a figure of bars, one per data set.

    `paper` is the data set of the paper's table; without it, the same one where the paper has it.
    """

    name: str
    what: str
    paper: str | None = None
    measures: tuple[str, ...] = MEASURES
    row_title: str = "method"
    note: str = ""

    def __call__(self, outcomes: Sequence[Outcome]) -> list[SheetTable]:
        return [self._table(dataset, own) for dataset, own in _by_dataset(outcomes).items()]

    def _table(self, dataset: str, outcomes: Sequence[Outcome]) -> SheetTable:
        printed, paper = read_printed(self.name.replace("-", "_")), self.paper or _compared_with(dataset)
        columns = {one: one if one in printed.columns else f"{paper} {one}" for one in self.measures}
        rows = []
        for one in outcomes:
            pairs = [pair(_values(one, measure), printed, one.beside, columns[measure]) for measure in columns]
            rows.append(row_of(one.row, [one], pairs))
        return SheetTable(
            name=f"{self.name}-{dataset}",
            title=_title(self.what, dataset, paper),
            label=printed.label,
            columns=self.measures,
            rows=tuple(rows),
            row_title=self.row_title,
            figure="bars",
            y_title="%",
            notes=(self.note, _DEFINITIONS) if self.note else (_DEFINITIONS,),
        )


MAIN = MeasuredTables("main", "Main table")
WITHOUT_PTM = MeasuredTables("non-ptm", "Without a pre-trained model", "cifar100", ("FAA",), note=_COPIED)
ABLATION = MeasuredTables("ablation", "Ablation", "imagenet_r", row_title="parts", note=_FINE_TUNED)


def history_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Accuracy and forgetting after each task, one table per data set."""
    tables = []
    for dataset, own in _by_dataset(outcomes).items():
        paper = _compared_with(dataset)
        for kind, read in _HISTORIES.items():
            title = _title(f"{kind.capitalize()} after each task", dataset, paper)
            printed = read_printed(f"{kind}_{paper}")
            tables.append(per_task_table(f"{kind}-{dataset}", title, printed, own, read, f"{kind}, %"))
    return tables


def per_task_table(
    name: str,
    title: str,
    printed: PrintedTable,
    outcomes: Sequence[Outcome],
    read: ByTask,
    y_title: str,
    digits: int = 2,
) -> SheetTable:
    """A table with one column per task and their mean, and a figure of lines."""
    tasks = max((len(read(run)) for outcome in outcomes for run in outcome.runs), default=len(printed.columns) - 1)
    columns = (*(str(task) for task in range(1, tasks + 1)), "AVG")
    rows = []
    for outcome in outcomes:
        pairs = []
        for number, column in enumerate(columns):
            values = [_at(read(run), number, column) for run in outcome.runs]
            pairs.append(pair([value for value in values if value is not None], printed, outcome.beside, column))
        rows.append(row_of(outcome.row, [outcome], pairs))
    return SheetTable(
        name=name,
        title=title,
        label=printed.label,
        columns=columns,
        rows=tuple(rows),
        digits=digits,
        figure="lines",
        x=tuple(float(task) for task in range(1, tasks + 1)),
        x_title="after task",
        y_title=y_title,
    )


def _at(values: Sequence[float | None], number: int, column: str) -> float | None:
    known = [value for value in values if value is not None]
    if column == "AVG":
        return fmean(known) if known else None
    return values[number] if number < len(values) else None


def robustness_tables(name: str, parameter: str, outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """FAA and CAA against a parameter, one table per data set and measure."""
    printed = read_printed(name.replace("-", "_"))
    tables = []
    for dataset, own in _by_dataset(outcomes).items():
        settings = sorted({outcome.setting for outcome in own if outcome.setting is not None})
        for measure in ("FAA", "CAA"):
            rows = []
            for row in dict.fromkeys(outcome.row for outcome in own):
                found = {outcome.setting: outcome for outcome in own if outcome.row == row}
                pairs = [
                    pair(_values(found[one], measure), printed, found[one].beside, f"{one} {measure}")
                    for one in settings
                ]
                rows.append(row_of(row, list(found.values()), pairs))
            tables.append(
                SheetTable(
                    name=f"{name}-{measure.lower()}-{dataset}",
                    title=_title(f"{measure} against {parameter}", dataset, "imagenet_r"),
                    label=printed.label,
                    columns=tuple(map(str, settings)),
                    rows=tuple(rows),
                    figure="lines",
                    x=tuple(map(float, settings)),
                    x_title=parameter,
                    y_title=f"{measure}, %",
                )
            )
    return tables


def pair(values: Sequence[float], printed: PrintedTable, row: str | None, column: str) -> Pair:
    """Ours over seeds, and the paper's number."""
    ours, theirs = Spread.of(values) if values else None, printed.find(row, column)
    return Pair(ours) if theirs is None else Pair(ours, theirs.value, theirs.slip)


def row_of(name: str, outcomes: Sequence[Outcome], pairs: Sequence[Pair]) -> SheetRow:
    """A row with its seeds, and why runs are missing."""
    seeds = tuple(sorted({run.config["seed"] for outcome in outcomes for run in outcome.runs}))
    reasons = list(dict.fromkeys(outcome.why for outcome in outcomes if outcome.why))
    remark = ""
    if reasons:
        some = any(outcome.runs for outcome in outcomes)
        remark = f"{'some runs are missing' if some else 'not run'}: {'; '.join(reasons)}"
    return SheetRow(name, tuple(pairs), seeds, remark)


def _by_dataset(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(outcome.dataset, []).append(outcome)
    return found


def _compared_with(dataset: str) -> str:
    return dataset if dataset in DATASETS else "cifar100"


def _values(outcome: Outcome, measure: str) -> list[float]:
    return [float(run.metrics[_KEYS[measure]]) for run in outcome.runs]


def _title(what: str, dataset: str, paper: str) -> str:
    ours = _TITLES.get(dataset, dataset)
    return f"{what}, {ours}" if dataset == paper else f"{what}, {ours} (beside the paper's {_TITLES[paper]})"
