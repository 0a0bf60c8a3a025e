"""A sweep from the contents of its runs: settings over seeds, and the best of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from prol.report.comparison import Spread

State = Literal["finished", "unfinished", "not begun", "failed"]
MEASURES = ("faa", "caa", "forgetting", "images_per_second")


@dataclass(frozen=True)
class SweepRun:
    """One run: `options` is what was tried with its method, `condition` the stream it was tried on.

    Measures are None until it is finished; `problem` is what kept it from that.
    """

    folder: str
    dataset: str
    condition: Mapping[str, Any]
    method: str
    options: Mapping[str, Any]
    seed: int
    state: State = "not begun"
    problem: str | None = None
    faa: float | None = None
    caa: float | None = None
    forgetting: float | None = None
    images_per_second: float | None = None


@dataclass(frozen=True)
class Setting:
    """What was tried once with each seed; `asked` is how many seeds there are to be."""

    dataset: str
    condition: Mapping[str, Any]
    method: str
    options: Mapping[str, Any]
    asked: int
    seeds: tuple[int, ...]
    faa: Spread
    caa: Spread
    forgetting: Spread


def settings_of(runs: Iterable[SweepRun]) -> list[Setting]:
    """One a setting that has finished runs, in the order of the sweep."""
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
    """What `sweep.json` holds."""
    settings = settings_of(runs)
    return {
        "runs_asked": len(runs),
        "runs_finished": sum(run.state == "finished" for run in runs),
        "chosen_by": "mean over seeds of FAA",
        "chosen_on": "development split" if development else "test images",
        "best": [asdict(one) for one in best_of(settings)],
        "settings": [asdict(one) for one in settings],
        "runs": [asdict(run) for run in runs],
    }


def _rank(setting: Setting) -> tuple[int, float, float]:
    return len(setting.seeds), setting.faa.mean, setting.caa.mean


def _key(*parts: Any) -> str:
    return json.dumps(parts, sort_keys=True, default=dict)
