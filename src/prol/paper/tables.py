"""Tables of accuracies from finished runs, ours next to the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from prol.paper.grid import Outcome
from prol.paper.printed import DATASETS, MEASURES, PrintedTable, read_printed
from prol.report.comparison import Spread
from prol.report.sheet import Pair, SheetRow, SheetTable
from prol.runfiles import RunFiles

Read = Callable[[RunFiles], float]

TITLES = {"cifar100": "CIFAR-100", "imagenet_r": "ImageNet-R", "imagenet_a": "ImageNet-A", "cub200": "CUB-200"}
DEFINITIONS = (
    "In %, by the published code's definitions: FAA and CAA count every test image alike, FM takes the best accuracy "
    "up to now. Ours as mean ± sample deviation over seeds."
)
_KEYS = {"FAA": "faa", "CAA": "caa", "FM": "forgetting"}


def compared_with(dataset: str, home: str) -> str:
    """The paper's data set with which ours is compared: the same, else `home`."""
    return dataset if dataset in DATASETS else home


def datasets_of(outcomes: Iterable[Outcome]) -> list[str]:
    """The data sets, in the order requested."""
    return list(dict.fromkeys(outcome.dataset for outcome in outcomes))


def main_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """The main table, one per data set."""
    printed = read_printed("main")
    tables = []
    for dataset in datasets_of(outcomes):
        paper = compared_with(dataset, "cifar100")
        tables.append(
            SheetTable(
                name=f"main-{dataset}",
                title=_title("Main table", dataset, paper),
                label=printed.label,
                columns=MEASURES,
                rows=tuple(
                    _measured(outcome, printed, [(f"{paper} {measure}", measure) for measure in MEASURES])
                    for outcome in outcomes
                    if outcome.dataset == dataset
                ),
                figure="bars",
                y_title="%",
                notes=(DEFINITIONS,),
            )
        )
    return tables


def history_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Accuracy and forgetting after each task, one table per data set."""
    tables = []
    for dataset in datasets_of(outcomes):
        paper = compared_with(dataset, "cifar100")
        own = [outcome for outcome in outcomes if outcome.dataset == dataset]
        for kind, key in (("accuracy", "average_accuracy"), ("forgetting", "forgetting_history")):
            printed = read_printed(f"{kind}_{paper}")
            read = _history(key, skip=kind == "forgetting")
            title = _title(f"{kind.capitalize()} after each task", dataset, paper)
            tables.append(per_task_table(f"{kind}-{dataset}", title, printed, own, read, f"{kind}, %"))
    return tables


def per_task_table(
    name: str,
    title: str,
    printed: PrintedTable,
    outcomes: Sequence[Outcome],
    read: Callable[[RunFiles], Sequence[float | None]],
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
        rows.append(row_of(outcome, pairs))
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


def without_ptm_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """Methods that train from scratch and store images, and PROL."""
    printed = read_printed("non_ptm")
    return [
        SheetTable(
            name=f"non-ptm-{dataset}",
            title=_title("Without a pre-trained model", dataset, "cifar100"),
            label=printed.label,
            columns=("FAA",),
            rows=tuple(
                _measured(outcome, printed, [("cifar100 FAA", "FAA")])
                for outcome in outcomes
                if outcome.dataset == dataset
            ),
            figure="bars",
            y_title="%",
            notes=(
                "The paper copied all rows but PROL's from another paper. They are of classes in an order drawn by the "
                "seed, so here too; PROL's are by label.",
                DEFINITIONS,
            ),
        )
        for dataset in datasets_of(outcomes)
    ]


def ablation_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """PROL's parts, added one after another."""
    printed = read_printed("ablation")
    return [
        SheetTable(
            name=f"ablation-{dataset}",
            title=_title("Ablation", dataset, "imagenet_r"),
            label=printed.label,
            columns=MEASURES,
            rows=tuple(
                _measured(outcome, printed, [(measure, measure) for measure in MEASURES])
                for outcome in outcomes
                if outcome.dataset == dataset
            ),
            row_title="parts",
            figure="bars",
            y_title="%",
            notes=(
                "FT is not defined in the paper. Here its rows train a head and the LayerNorms without prompts; "
                "`whole network` trains all weights (`finetune`).",
                DEFINITIONS,
            ),
        )
        for dataset in datasets_of(outcomes)
    ]


def robustness_tables(name: str, parameter: str, outcomes: Sequence[Outcome]) -> list[SheetTable]:
    """FAA and CAA against a parameter, one table per data set and measure."""
    printed = read_printed(name.replace("-", "_"))
    tables = []
    for dataset in datasets_of(outcomes):
        own = [outcome for outcome in outcomes if outcome.dataset == dataset]
        values = sorted({outcome.setting for outcome in own if outcome.setting is not None})
        for measure in ("FAA", "CAA"):
            rows = []
            for row in dict.fromkeys(outcome.row for outcome in own):
                found = {outcome.setting: outcome for outcome in own if outcome.row == row}
                pairs = [
                    pair(
                        [_metric(measure)(run) for run in found[value].runs],
                        printed,
                        found[value].beside,
                        f"{value} {measure}",
                    )
                    for value in values
                ]
                rows.append(joined_row(row, list(found.values()), pairs))
            tables.append(
                SheetTable(
                    name=f"{name}-{measure.lower()}-{dataset}",
                    title=_title(f"{measure} against {parameter}", dataset, "imagenet_r"),
                    label=printed.label,
                    columns=tuple(str(value) for value in values),
                    rows=tuple(rows),
                    figure="lines",
                    x=tuple(float(value) for value in values),
                    x_title=parameter,
                    y_title=f"{measure}, %",
                )
            )
    return tables


def pair(values: Sequence[float], printed: PrintedTable, row: str | None, column: str) -> Pair:
    """Ours over seeds, and the paper's number."""
    ours, theirs = Spread.of(values) if values else None, printed.find(row, column)
    return Pair(ours) if theirs is None else Pair(ours, theirs.value, theirs.slip)


def row_of(outcome: Outcome, pairs: Sequence[Pair]) -> SheetRow:
    """A row with its seeds, and why runs are missing."""
    return joined_row(outcome.row, [outcome], pairs)


def joined_row(name: str, outcomes: Sequence[Outcome], pairs: Sequence[Pair]) -> SheetRow:
    """A row that several outcomes share, one column each."""
    seeds = tuple(sorted({run.config["seed"] for outcome in outcomes for run in outcome.runs}))
    reasons = list(dict.fromkeys(outcome.why for outcome in outcomes if outcome.why))
    remark = ""
    if reasons:
        some = any(outcome.runs for outcome in outcomes)
        remark = f"{'some runs are missing' if some else 'not run'}: {'; '.join(reasons)}"
    return SheetRow(name, tuple(pairs), seeds, remark)


def _measured(outcome: Outcome, printed: PrintedTable, columns: Sequence[tuple[str, str]]) -> SheetRow:
    pairs = [
        pair([_metric(measure)(run) for run in outcome.runs], printed, outcome.beside, column)
        for column, measure in columns
    ]
    return row_of(outcome, pairs)


def _metric(measure: str) -> Read:
    return lambda run: float(run.metrics[_KEYS[measure]])


def _history(key: str, skip: bool) -> Callable[[RunFiles], Sequence[float | None]]:
    """Values by task; after the first, nothing can have been forgotten."""

    def read(run: RunFiles) -> Sequence[float | None]:
        values: list[float | None] = list(run.metrics[key])
        return [None, *values[1:]] if skip else values

    return read


def _at(values: Sequence[float | None], number: int, column: str) -> float | None:
    known = [value for value in values if value is not None]
    if column == "AVG":
        return fmean(known) if known else None
    return values[number] if number < len(values) else None


def _title(what: str, dataset: str, paper: str) -> str:
    ours = TITLES.get(dataset, dataset)
    return f"{what}, {ours}" if dataset == paper else f"{what}, {ours} (beside the paper's {TITLES[paper]})"
