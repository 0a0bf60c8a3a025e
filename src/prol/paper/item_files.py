"""An item's folder: its runs as a list, its tables as text and data with what differs from the paper, its figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from prol.files import read_text, require_real_folder, write_json, write_text
from prol.paper import tables, timing_tables
from prol.paper.grid import Outcome
from prol.paper.items import ITEMS, Item
from prol.paper.scale import CHUNK, PAPER_BACKBONE, PAPER_TINY_BACKBONE, TASKS
from prol.report.sheet import Sheet, SheetTable, plot_sheet, sheet_csv, sheet_markdown
from prol.runfiles import RunFiles
from prol.runs.executors import read_finished
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
    settings = differences(item, [run for one in outcomes for run in one.runs])
    return Sheet(item, ITEMS[item].about, tuple(settings), tuple(_TABLES[item](outcomes)))


def differences(item: str, runs: Sequence[RunFiles]) -> list[tuple[str, str, str]]:
    """Triples of setting, value here, and value in the paper, from the configs of the runs."""
    ordered = {"seeds": sorted(runs, key=lambda run: run.config["seed"])}
    found = []
    for what, paper in _paper_settings(item).items():
        values = (value for run in ordered.get(what, runs) for value in _settings(run)[what])
        here = ", ".join(dict.fromkeys(values))
        if here and here != paper:  # settings that runs did not record are omitted
            found.append((what, here, paper))
    return found


def _settings(run: RunFiles) -> dict[str, list[str]]:
    config = run.config
    dataset, protocol, how = config["dataset"], config["protocol"], config.get("preprocessing")
    limit, rate = dataset.get("limit_per_class"), config["options"].get("lr")
    tasks, notes = str(protocol["tasks"]), dataset.get("notes") or []
    data = "; ".join([f"{dataset['train_images']:,} + {dataset['test_images']:,} images", *notes])
    return {
        "backbone": [f"{config['backbone']['name']} ({config['backbone']['sha256'][:12]})"],
        "image size": [] if how is None else [f"{how['size']} pixels"],
        "data": [f"{dataset['name']} ({data})"],
        "limit per class": ["none" if limit is None else str(limit)],
        "tasks": [tasks if tasks == str(TASKS) else f"{tasks} ({dataset['name']})"],
        "chunk": [str(protocol["chunk"])],
        "seeds": [str(config["seed"])],
        "precision": [f"{config['precision']} on {config['device'].partition(':')[0]}"],
        "hardware": run.hardware,
        "learning rates": [] if rate is None else [f"{config['method']} {rate:g} ({dataset['name']})"],
    }


def _paper_settings(item: str) -> dict[str, str]:
    data = {
        "main": "CIFAR-100, ImageNet-R, ImageNet-A, CUB-200",
        "history": "CIFAR-100, ImageNet-R, ImageNet-A, CUB-200",
        "appendix": "CIFAR-100, ImageNet-R, ImageNet-A, CUB-200; times on ImageNet-R",
        "non-ptm": "CIFAR-100",
    }
    without_ptm = item == "non-ptm"
    return {
        "backbone": f"ResNet-18; PROL {PAPER_TINY_BACKBONE}" if without_ptm else PAPER_BACKBONE,
        "image size": "32; PROL 224 pixels" if without_ptm else "224 pixels",
        "data": data.get(item, "ImageNet-R"),
        "limit per class": "none",
        "tasks": str(TASKS),
        "chunk": str(CHUNK),
        "seeds": "three by the text; most printed numbers fit a single run",
        "precision": "not said; one A100 of 40 GB",
        "hardware": "one A100 of 40 GB",
        "learning rates": "from a grid of 0.001 to 0.1, choice not said",
    }


def _appendix_tables(outcomes: Sequence[Outcome]) -> list[SheetTable]:
    untimed = [outcome for outcome in outcomes if not outcome.timed]
    return [*tables.history_tables(untimed), *timing_tables.per_task_time_tables(outcomes)]


_TABLES: dict[str, Callable[[Sequence[Outcome]], list[SheetTable]]] = {
    "main": tables.MAIN,
    "history": tables.history_tables,
    "non-ptm": tables.WITHOUT_PTM,
    "throughput": timing_tables.throughput_tables,
    "robustness-length": partial(tables.robustness_tables, "robustness-length", "prompt length"),
    "robustness-layers": partial(tables.robustness_tables, "robustness-layers", "prompted blocks"),
    "ablation": tables.ABLATION,
    "appendix": _appendix_tables,
    "complexity": timing_tables.complexity_tables,
}


def write_item(item: Item, outcomes: Sequence[Outcome], folder: Path) -> Reproduced:
    """Writes all files of the item's folder."""
    place = folder / item.name
    require_real_folder(place)
    place.mkdir(parents=True, exist_ok=True)
    recorded = [{name: getattr(outcome, name) for name in _RECORDED} for outcome in outcomes]
    runs = [[run.folder for run in outcome.runs] for outcome in outcomes]
    write_json(place / OUTCOMES, [one | {"runs": own} for one, own in zip(recorded, runs, strict=True)])
    return write_tables(item, outcomes, folder)


def write_tables(item: Item, outcomes: Sequence[Outcome], folder: Path) -> Reproduced:
    """Writes all files that follow from the runs and their list."""
    made = describe(item, outcomes, folder)
    sheet, place = made.sheet, made.folder
    require_real_folder(place)
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


def left_out_runs(item: Item, requested: AbstractSet[str], folder: Path) -> int:
    """The number of finished runs in the item's current list that are not requested now."""
    try:
        listed = json.loads(read_text(folder / item.name / OUTCOMES))
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
        rows: list[dict[str, Any]] = json.loads(read_text(file))
        outcomes = [(Outcome(**row | {"runs": ()}), [folder / RUNS / str(run) for run in row["runs"]]) for row in rows]
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
