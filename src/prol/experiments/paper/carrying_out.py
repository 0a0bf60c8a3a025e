"""Runs by content: each lies in a folder named after what it is, is made once, and serves every item that needs it."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from prol import registry
from prol.artifacts.folders import make_folder
from prol.backbones import Backbone, open_backbone
from prol.experiments.executors import Executor
from prol.experiments.one_run import sentence_of
from prol.experiments.paper.differences import read_beside_paper
from prol.experiments.paper.items import Want
from prol.runfiles import RunFiles
from prol.runs import Plan, RunFolder
from prol.runs.folder import DamagedRun
from prol.runs.setup import set_up

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one row on one data set: its finished runs, and why others are missing."""

    row: str
    beside: str | None
    method: str
    dataset: str
    setting: int | None
    timed: bool
    runs: tuple[RunFiles, ...]
    why: str | None
    failed: bool = False
    """Whether a run was begun and could not be finished, rather than never begun."""


class Grid:
    """The runs behind any number of items, under one folder.

    Args:
        folder: where runs lie.
        seeds: every row runs with each of them.
        executor: carries out runs whose time does not count.
        alone: carries out the others, one after another.
        say: is given lines about how the whole gets on.
        keep_models: whether finished runs keep their learner; tables need only its results.
    """

    def __init__(
        self,
        folder: Path,
        seeds: Sequence[int],
        executor: Executor,
        alone: Executor,
        say: Say,
        keep_models: bool = False,
    ) -> None:
        self.folder, self.seeds, self.say, self.keep_models = folder, seeds, say, keep_models
        self.executor, self.alone = executor, alone
        self.problems: dict[Path, str] = {}
        """Why runs that were begun did not finish."""
        self._configs: dict[str, dict[str, Any] | str] = {}
        self._unavailable: dict[tuple[str, ...], str] = {}
        self._open_network = lru_cache(maxsize=1)(open_backbone)

    def prepare(self, wants: Sequence[Want]) -> None:
        """Finds out what each run is, and whether its data and weights are to be had."""
        for want in wants:
            self._config(want.plan)
        self._open_network.cache_clear()

    def prepared(self, wants: Sequence[Want]) -> bool:
        return all(_key(want.plan) in self._configs for want in wants)

    def carry_out(self, wants: Sequence[Want]) -> Generator[Path, None, None]:
        """Makes what is not there yet, what is timed at last; yields each run when it is over."""
        asked: dict[bool, dict[Path, Plan]] = {False: {}, True: {}}
        for want in wants:
            places = self._places(want)
            asked[want.timed] |= {} if isinstance(places, str) else places
        pending = {timed: {path: plan for path, plan in runs.items() if _open(path)} for timed, runs in asked.items()}
        total = sum(map(len, asked.values()))
        done = total - sum(map(len, pending.values()))
        if done:
            self._tell_finished([path for timed in asked for path in asked[timed] if path not in pending[timed]], total)
        make_folder(self.folder)
        for timed, executor in ((False, self.executor), (True, self.alone)):
            with closing(executor.settle(pending[timed], self._hear)) as outcomes:
                for path, problem in outcomes:
                    done += 1
                    if problem is not None:
                        self.problems[path] = problem
                    elif not self.keep_models:
                        _leave_results(RunFolder(path))
                    became = "finished" if problem is None else f"failed: {problem}"
                    self.say(f"{path.name} {became} ({done} of {total} runs)")
                    yield path

    def settled(self, wants: Sequence[Want]) -> bool:
        """Whether no run of them is still to come."""
        places = [self._places(want) for want in wants]
        paths = (path for found in places if not isinstance(found, str) for path in found)
        return all(path in self.problems or not _open(path) for path in paths)

    def names(self, wants: Sequence[Want]) -> set[str]:
        """Of the folders of all runs that are asked for, as far as their data and weights are there."""
        places = [self._places(want) for want in wants]
        return {path.name for found in places if not isinstance(found, str) for path in found}

    def outcomes(self, wants: Sequence[Want]) -> list[Outcome]:
        """What there is."""
        return [self._outcome(want, self._places(want)) for want in wants]

    def _hear(self, path: Path, line: str) -> None:
        self.say(f"{path.name}: {line}")

    def _tell_finished(self, paths: Sequence[Path], total: int) -> None:
        self.say(f"{len(paths)} of {total} runs are finished already")
        if self.keep_models and (gone := sum(not RunFolder(path).model.is_dir() for path in paths)):
            self.say(f"{gone} of them were made without --keep-models and keep no learner")

    def _places(self, want: Want) -> dict[Path, Plan] | str:
        """The folder of each seed's run; a sentence where there can be none."""
        config = self._config(want.plan)
        if isinstance(config, str):
            return config
        # What is left to the machine is no part of what a run is: another machine takes it up.
        content = {**config, "threads": want.plan.threads, "workers": want.plan.workers}
        return {self.folder / run_name({**content, "seed": seed}): replace(want.plan, seed=seed) for seed in self.seeds}

    def _config(self, plan: Plan) -> dict[str, Any] | str:
        key = _key(plan)
        if key not in self._configs:
            self._configs[key] = self._set_up(plan)
        return self._configs[key]

    def _set_up(self, plan: Plan) -> dict[str, Any] | str:
        if plan.method not in registry.names("methods"):
            return f"there is no method {plan.method!r} in this version"
        missing = self._missing(("data", plan.dataset, str(plan.data)), lambda: _open_data(plan))
        if not missing:
            place = ("backbone", plan.backbone, plan.device, plan.precision)
            missing = self._missing(place, lambda: self._network_of(plan))
        if missing:
            return missing
        try:
            return set_up(plan, self._open_network).config
        except Exception as error:
            return sentence_of(error)

    def _network_of(self, plan: Plan) -> Backbone:
        return self._open_network(plan.backbone, device=plan.device, precision=plan.precision)

    def _missing(self, key: tuple[str, ...], test: Callable[[], object]) -> str:
        """Why data or weights are not to be had, found out once; empty where they are."""
        if key not in self._unavailable:
            self._unavailable[key] = _problem(test)
            if self._unavailable[key]:
                self.say(f"{key[1]} is not to be had: {self._unavailable[key]}")
        return self._unavailable[key]

    def _outcome(self, want: Want, places: dict[Path, Plan] | str) -> Outcome:
        runs: list[RunFiles] = []
        why: list[str] = [places] if isinstance(places, str) else []
        for path in () if isinstance(places, str) else places:
            run = RunFolder(path)
            if run.status() == "finished":
                try:
                    runs.append(read_beside_paper(run))
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
            failed=any(path in self.problems for path in (() if isinstance(places, str) else places)),
        )


def _key(plan: Plan) -> str:
    return repr(replace(plan, seed=0))


def _open(path: Path) -> bool:
    return RunFolder(path).status() != "finished"


def _leave_results(run: RunFolder) -> None:
    """A learner may be a thousand times its results, and a main table has dozens of them."""
    for folder in (run.checkpoints, run.model):
        shutil.rmtree(folder, ignore_errors=True)


def run_name(config: Mapping[str, Any]) -> str:
    """A folder's name from what a run is: the same for the same config, whatever versions it is run with."""
    content = {name: value for name, value in config.items() if name != "versions"}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    name = f"{config['method']}-{config['dataset']['name']}-seed{config['seed']}"
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{digest[:12]}"


def _problem(test: Callable[[], object]) -> str:
    try:
        test()
    except Exception as error:
        return sentence_of(error)
    return ""


def _open_data(plan: Plan) -> object:
    return registry.dataset(plan.dataset)(data=plan.data)
