"""An item's folder: its runs as a list, its tables as text and data, its figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from prol.files import write_json, write_text
from prol.paper import tables, timing_tables
from prol.paper.differences import differences
from prol.paper.grid import Outcome
from prol.paper.items import ITEMS, Item
from prol.report.sheet import Sheet, SheetTable, sheet_csv, sheet_markdown
from prol.report.sheet_plot import plot_sheet
from prol.runs.engine import read_finished
from prol.runs.folder import DamagedRun, RunFolder

RUNS, OUTCOMES = "runs", "runs.json"
_RECORDED = ("row", "beside", "method", "dataset", "setting", "timed", "why", "failed")
_TABLE = "table"


@dataclass(frozen=True)
class Reproduced:
    """An item: its sheet, its page, its folder, what is missing and why, and whether a run failed."""

    sheet: Sheet
    page: str
    folder: Path
    missing: tuple[str, ...]
    failed: bool

    @property
    def finished_runs(self) -> int:
        return sum(len(row.seeds) for table in self.sheet.tables for row in table.rows)


def make_sheet(item: str, outcomes: Sequence[Outcome]) -> Sheet:
    """The tables of an item, from the outcomes of its runs."""
    return Sheet(
        item,
        ITEMS[item].about,
        tuple(differences(item, [run for one in outcomes for run in one.runs])),
        tuple(_TABLES[item](outcomes)),
    )


def _appendix_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    untimed = [outcome for outcome in outcomes if not outcome.timed]
    return [*tables.history_tables(untimed), *timing_tables.per_task_time_tables(outcomes)]


_TABLES: dict[str, Callable[[Sequence[Outcome]], list[SheetTable]]] = {
    "main": tables.main_tables,
    "history": tables.history_tables,
    "non-ptm": tables.without_ptm_tables,
    "throughput": timing_tables.throughput_tables,
    "robustness-length": partial(tables.robustness_tables, "robustness-length", "prompt length"),
    "robustness-layers": partial(tables.robustness_tables, "robustness-layers", "prompted blocks"),
    "ablation": tables.ablation_tables,
    "appendix": _appendix_tables,
    "complexity": timing_tables.complexity_tables,
}


def write_item(item: Item, outcomes: Sequence[Outcome], folder: Path) -> Reproduced:
    """Writes all files of the item's folder."""
    place = folder / item.name
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / OUTCOMES, [_outcome_content(outcome) for outcome in outcomes])
    return write_tables(item, outcomes, folder)


def write_tables(item: Item, outcomes: Sequence[Outcome], folder: Path) -> Reproduced:
    """Writes all files that follow from the runs and their list."""
    made = describe(item, outcomes, folder)
    sheet, place = made.sheet, made.folder
    place.mkdir(parents=True, exist_ok=True)
    write_json(place / f"{_TABLE}.json", asdict(sheet))
    write_text(place / f"{_TABLE}.csv", sheet_csv(sheet))
    write_text(place / f"{_TABLE}.md", made.page)  # there even where no picture can be drawn
    write_text(place / f"{_TABLE}.md", sheet_markdown(sheet, plot_sheet(sheet, place)))
    return made


def describe(item: Item, outcomes: Sequence[Outcome], folder: Path) -> Reproduced:
    """What would be written; writes nothing."""
    sheet = make_sheet(item.name, outcomes)
    missing = tuple(dict.fromkeys(f"{one.row} on {one.dataset}: {one.why}" for one in outcomes if one.why))
    return Reproduced(sheet, sheet_markdown(sheet), folder / item.name, missing, any(one.failed for one in outcomes))


def _outcome_content(outcome: Outcome) -> dict[str, Any]:
    content = {name: getattr(outcome, name) for name in _RECORDED}
    return content | {"runs": [run.folder for run in outcome.runs]}


def left_out_runs(item: Item, requested: AbstractSet[str], folder: Path) -> int:
    """The number of finished runs in the item's current list that are not requested now."""
    try:
        listed = json.loads((folder / item.name / OUTCOMES).read_text(encoding="utf-8"))
        before = {str(name) for row in listed for name in row["runs"]}
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return sum(RunFolder(folder / RUNS / name).status() == "finished" for name in before - requested)


def sources(folder: Path, item: Item) -> list[Path]:
    """The files that list an item's runs: its own, else those of all items it is made of."""
    own, parts = folder / item.name / OUTCOMES, [folder / part / OUTCOMES for part in item.made_of]
    if own.is_file():
        return [own]
    return parts if all(part.is_file() for part in parts) else []


def read_outcomes(folder: Path, item: Item) -> list[Outcome]:
    """The outcomes that `write_item` recorded, with the content of their runs."""
    return [outcome for file in sources(folder, item) for outcome in _read_outcomes(folder, file)]


def _read_outcomes(folder: Path, file: Path) -> list[Outcome]:
    try:
        rows: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
        outcomes = [
            (Outcome(**{**row, "runs": ()}), [folder / RUNS / str(name) for name in row["runs"]]) for row in rows
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is damaged: {error}; reproduce {file.parent.name} again, finished runs are reused"
        ) from error
    return [_with_runs(outcome, paths) for outcome, paths in outcomes]


def _with_runs(outcome: Outcome, paths: Sequence[Path]) -> Outcome:
    """The outcome with the content of its runs, and the errors of those that cannot be read."""
    runs, why = [], [] if outcome.why is None else [outcome.why]
    for path in paths:
        try:
            runs.append(read_finished(RunFolder(path)))
        except (DamagedRun, FileNotFoundError) as error:
            why.append(str(error))
    return replace(outcome, runs=tuple(runs), why="; ".join(why) or None)
