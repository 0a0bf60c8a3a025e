"""A sweep from the contents of its runs: settings over seeds, the best of them, and its tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rich.table import Table as RichTable

from prol.report.table import Spread, Table, csv_text

RunState = Literal["finished", "unfinished", "not begun", "failed"]
MEASURES = ("faa", "caa", "forgetting", "images_per_second")
ON_TEST = (
    "Chosen on the test images: such a choice makes its own numbers look better than they are. "
    "`--development` chooses on a split of the training images."
)


@dataclass(frozen=True)
class SweepRun:
    """One run: `options` are those tried with its method, `condition` the stream they were tried on.

    Measures are None until it is finished; `problem` is the reason why it is not.
    """

    folder: str
    dataset: str
    condition: Mapping[str, Any]
    method: str
    options: Mapping[str, Any]
    seed: int
    state: RunState = "not begun"
    problem: str | None = None
    faa: float | None = None
    caa: float | None = None
    forgetting: float | None = None
    images_per_second: float | None = None
    side_by_side: bool = False
    """Whether other runs were running at the same time, so that its speed says little."""


@dataclass(frozen=True)
class Setting:
    """Options on a stream over seeds; `requested` is the number of seeds requested."""

    dataset: str
    condition: Mapping[str, Any]
    method: str
    options: Mapping[str, Any]
    requested: int
    seeds: tuple[int, ...]
    faa: Spread
    caa: Spread
    forgetting: Spread


def settings_of(runs: Iterable[SweepRun]) -> list[Setting]:
    """One for each setting that has finished runs, in the order of the sweep."""
    groups: dict[str, list[SweepRun]] = {}
    for run in runs:
        groups.setdefault(_key(run.dataset, run.condition, run.method, run.options), []).append(run)
    found = []
    for group in groups.values():
        finished = [run for run in group if run.faa is not None]
        if finished:
            one = finished[0]
            values = {name: [float(getattr(run, name)) for run in finished] for name in ("faa", "caa", "forgetting")}
            spreads = {name: Spread.of(numbers) for name, numbers in values.items()}
            seeds = tuple(run.seed for run in finished)
            found.append(Setting(one.dataset, one.condition, one.method, one.options, len(group), seeds, **spreads))
    return found


def best_of(settings: Iterable[Setting]) -> list[Setting]:
    """The setting of highest mean FAA for each data set, condition and method.

    A setting that lost seeds is only chosen where none has more: a learning rate at which half of the runs diverge
    must not win by the other half.
    """
    best: dict[str, Setting] = {}
    for one in settings:
        key = _key(one.dataset, one.condition, one.method)
        if key not in best or _rank(one) > _rank(best[key]):
            best[key] = one
    return list(best.values())


def sweep_content(runs: Sequence[SweepRun], development: bool) -> dict[str, Any]:
    """The content of `sweep.json`."""
    settings = settings_of(runs)
    return {
        "runs_asked": len(runs),
        "runs_finished": sum(run.state == "finished" for run in runs),
        "chosen_by": "mean over seeds of FAA",
        "chosen_on": "development split" if development else "test images",
        "best": [asdict(one) for one in best_of(settings)],
        "settings": [asdict(one) for one in settings],
        "runs": [asdict(run) for run in runs],
        "side_by_side": {run.folder: True for run in runs if run.side_by_side},
    }


def best_table(runs: Sequence[SweepRun]) -> RichTable:
    """The best setting of each method on each data set."""
    settings = settings_of(runs)
    titles = ("data set", "under", "method", "best", "FAA", "CAA", "forgetting", "seeds", "tried")
    rows = [[*_texts(one, " "), str(_tried(one, settings))] for one in best_of(settings)]
    return Table.of(titles, rows, "llllrrrrr").rich(dense=True)


def sweep_markdown(runs: Sequence[SweepRun], development: bool, commands: Sequence[str]) -> str:
    """A page: the best settings, all settings, unfinished runs, and the commands to run next."""
    settings, names = settings_of(runs), list(dict.fromkeys(run.dataset for run in runs))
    finished = sum(run.state == "finished" for run in runs)
    choice = "Chosen on the development split; the test images are untouched." if development else ON_TEST
    lines = [
        f"# Sweep on {', '.join(names)}",
        "",
        f"{finished} of {len(runs)} runs finished. Accuracies and forgetting in %, as mean ± sample deviation over "
        f"seeds. Best is the highest mean FAA. {choice}",
        "",
        "## Best settings",
        "",
        *_markdown(best_of(settings)),
        "",
        "## All settings",
        "",
        *_markdown(settings),
    ]
    if commands:
        lines += ["", "## Measuring them on the test images", "", *(f"    {command}" for command in commands)]
    lost = [run for run in runs if run.state != "finished"]
    if lost:
        lines += ["", "## Not finished", "", *(f"- {run.folder}: {run.problem or run.state}" for run in lost)]
    return "\n".join(lines) + "\n"


def sweep_csv(runs: Sequence[SweepRun]) -> str:
    """One row per run, with a column for each option and condition of any of them."""
    options = list(dict.fromkeys(name for run in runs for name in run.options))
    conditions = list(dict.fromkeys(name for run in runs for name in run.condition))
    first = ["folder", "dataset", "method", "seed", "state"]
    rows = [
        [
            *(getattr(run, name) for name in first),
            *(run.condition.get(name) for name in conditions),
            *(run.options.get(name) for name in options),
            *(getattr(run, name) for name in MEASURES),
            run.problem,
        ]
        for run in runs
    ]
    return csv_text([[*first, *conditions, *(f"option.{name}" for name in options), *MEASURES, "problem"], *rows])


def _markdown(settings: Sequence[Setting]) -> list[str]:
    titles = ("data set", "under", "method", "options", "FAA", "CAA", "forgetting", "seeds")
    return Table.of(titles, [_texts(one, ", ") for one in settings], "llllrrrr").markdown()


def _texts(one: Setting, gap: str) -> list[str]:
    condition, options = (
        gap.join(f"{name}={value}" for name, value in sorted(pairs.items())) for pairs in (one.condition, one.options)
    )
    seeds = ", ".join(map(str, one.seeds))
    seeds = seeds if len(one.seeds) == one.requested else f"{seeds} of {one.requested}"
    return [
        *(one.dataset, condition, one.method, options),
        *(measure.text() for measure in (one.faa, one.caa, one.forgetting)),
        seeds,
    ]


def _tried(one: Setting, settings: Sequence[Setting]) -> int:
    mine = (one.dataset, one.condition, one.method)
    return sum((other.dataset, other.condition, other.method) == mine for other in settings)


def _rank(setting: Setting) -> tuple[int, float, float]:
    return len(setting.seeds), setting.faa.mean, setting.caa.mean


def _key(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True, default=dict)
