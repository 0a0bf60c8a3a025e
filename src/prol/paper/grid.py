"""The runs behind the paper's tables: each in a folder named by its content, executed once for every item."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prol import registry
from prol.paper.items import Want
from prol.paper.scale import BUILT_IN_BACKBONE
from prol.runfiles import RunFiles
from prol.runs.executors import read_finished, sentence_of
from prol.runs.folder import DamagedRun, RunFolder
from prol.runs.inspection import Inspection
from prol.runs.plan import Plan
from prol.runs.setup import NOT_SETTINGS


@dataclass(frozen=True)
class Outcome:
    """One row on one data set: its finished runs, and why others are missing."""

    row: str
    beside: str | None
    method: str
    dataset: str
    setting: int | None
    timed: bool
    runs: tuple[RunFiles, ...]
    why: str | None
    failed: bool = False
    """Whether a run was started and could not be finished."""


class Grid:
    """The folders and outcomes of the runs behind any number of items.

    Args:
        folder: contains the folders of the runs.
        seeds: every row runs with each of them.
    """

    def __init__(self, folder: Path, seeds: Sequence[int]) -> None:
        self.folder, self.seeds = folder, seeds
        self.problems: dict[Path, str] = {}
        """Why runs that were started did not finish."""
        self._inspection = Inspection()
        self._configs: dict[str, dict[str, Any] | str] = {}
        self._unavailable: dict[tuple[str, ...], str] = {}

    def places(self, want: Want) -> dict[Path, Plan]:
        """The folder and the plan of each seed's run; none if its data or weights are missing."""
        config = self._config(want.plan)
        if isinstance(config, str):
            return {}
        # What is left to the machine is not part of a run's identity: another machine can resume it.
        content = {**config, "threads": want.plan.threads, "workers": want.plan.workers}
        return {self.folder / run_name({**content, "seed": seed}): replace(want.plan, seed=seed) for seed in self.seeds}

    def is_over(self, wants: Sequence[Want]) -> bool:
        """Whether none of the runs is still to come."""
        paths = (path for want in wants for path in self.places(want))
        return all(path in self.problems or RunFolder(path).status() == "finished" for path in paths)

    @property
    def missing(self) -> list[str]:
        """A sentence for each data set and network that is not available."""
        return [f"{key[1]} is not available: {why}" for key, why in self._unavailable.items() if why]

    def outcomes(self, wants: Sequence[Want]) -> list[Outcome]:
        return [self._outcome(want) for want in wants]

    def _config(self, plan: Plan) -> dict[str, Any] | str:
        """The plan's config for any seed; a sentence if it cannot run."""
        key = repr(replace(plan, seed=0))
        if key not in self._configs:
            self._configs[key] = self._inspect(plan)
        return self._configs[key]

    def _inspect(self, plan: Plan) -> dict[str, Any] | str:
        if plan.method not in registry.names("methods"):
            return f"there is no method {plan.method!r} in this version"
        data, network = ("data", plan.dataset, str(plan.data)), ("weights", plan.backbone, plan.device, plan.precision)
        missing = self._missing(data, lambda: self._inspection.dataset(plan))
        missing = missing or self._missing(network, lambda: self._inspection.network(plan))
        if missing:
            return missing
        try:
            return self._inspection.config(plan)
        except Exception as error:
            return sentence_of(error)

    def _missing(self, key: tuple[str, ...], test: Callable[[], object]) -> str:
        """Why data or weights are not available, tested once; empty if they are."""
        if key not in self._unavailable:
            self._unavailable[key] = ""
            try:
                test()
            except Exception as error:
                self._unavailable[key] = sentence_of(error)
        return self._unavailable[key]

    def _outcome(self, want: Want) -> Outcome:
        runs: list[RunFiles] = []
        config, places = self._config(want.plan), self.places(want)
        why: list[str] = [config] if isinstance(config, str) else []
        for path in places:
            run = RunFolder(path)
            if run.status() == "finished":
                try:
                    runs.append(read_finished(run))
                except DamagedRun as error:
                    self.problems[path] = str(error)
                    why.append(str(error))
            else:
                why.append(self.problems.get(path, "not finished"))
        return Outcome(
            want.row,
            want.beside,
            want.plan.method,
            want.plan.dataset,
            want.setting,
            want.timed,
            tuple(runs),
            "; ".join(dict.fromkeys(why)) or None,
            failed=any(path in self.problems for path in places),
        )


def run_name(config: Mapping[str, Any]) -> str:
    """A folder's name from a run's config: the same for the same settings, whatever the versions."""
    content = {name: value for name, value in config.items() if name not in ("versions", *NOT_SETTINGS)}
    if config["backbone"]["name"] == BUILT_IN_BACKBONE:  # folders of version 0.1.0 are found again
        content["backbone"] = config["backbone"] | {"name": "builtin"}
        content["told"] = config["told"] | {"weights": "builtin"}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    name = f"{config['method']}-{config['dataset']['name']}-seed{config['seed']}"
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{digest[:12]}"
