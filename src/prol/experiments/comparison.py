"""Many methods on the same stream, with the same seeds, each run in a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from prol.artifacts.atomic import write_json, write_text
from prol.artifacts.folders import at_work_in, require_folder
from prol.experiments.executors import Executor, LocalProcesses, OneByOne, require_jobs
from prol.experiments.one_run import read_run, require_same_plan, sentence_of
from prol.experiments.summary import BESIDE, company_of, kept_up_to_date, known_beside
from prol.experiments.told_lines import say_nothing
from prol.report.comparison import Row, compare_runs, describe_stream, from_scratch, stream_differences
from prol.report.comparison_table import comparison_markdown
from prol.runfiles import RunFiles
from prol.runs import Display, Plan, RunFolder
from prol.runs.display import Silent
from prol.runs.folder import DamagedRun
from prol.runs.setup import set_up

SUMMARY, PAGE = "comparison.json", "comparison.md"


@dataclass(frozen=True)
class Comparison:
    """All finished runs of a folder as rows, best first; and which runs are missing, each with the reason."""

    headline: str
    rows: list[Row]
    failures: dict[str, str]

    def failure_lines(self) -> list[str]:
        """One line a reason."""
        reasons: dict[str, list[str]] = {}
        for run, reason in self.failures.items():
            reasons.setdefault(reason, []).append(run)
        return [f"{', '.join(runs)}: {reason}" for reason, runs in reasons.items()]


def compare(
    plans: Sequence[Plan],
    seeds: Sequence[int],
    out: str | Path,
    *,
    jobs: int = 1,
    display: Display | None = None,
    say: Callable[[str], None] | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Carries out each plan with each seed in `out/NAME-seedN`, and writes `out/comparison.json` and `.md`.

    Finished runs that are there are kept and unfinished ones go on, if they are of the same plan. A run that fails
    does not stop the others. The comparison covers every finished run of the folder, so that it can grow.

    Args:
        plans: one a method, alike in all but method and options; their own seeds have no effect.
        jobs: how many runs are at work at the same time; results do not depend on it, speeds do.
        display: what shows a run while it is the only one.
        say: is given lines about how the whole gets on.
        executor: where the runs are carried out; here, as `jobs` and `display` say, when None.
    """
    folder, say = Path(out), say or say_nothing
    _require_fair(plans, seeds, jobs)
    named = _named(plans)
    configs, mistakes = _prepare(named)
    _require_room(folder, named, configs)
    failures = {f"{name}-seed{seed}": mistake for name, mistake in mistakes.items() for seed in seeds}
    wanted = {folder / f"{name}-seed{seed}": replace(named[name], seed=seed) for seed in seeds for name in configs}
    pending = {path: plan for path, plan in wanted.items() if RunFolder(path).status() != "finished"}
    for name, mistake in mistakes.items():
        say(f"{name} is left out: {mistake}")
    if len(pending) < len(wanted):
        say(f"{len(wanted) - len(pending)} of {len(wanted)} runs are finished already")
    if executor is None:
        executor = LocalProcesses(jobs) if jobs > 1 and len(pending) > 1 else OneByOne(display or Silent())
    with at_work_in(folder):
        _carry_out(pending, len(wanted), folder, failures, executor, say)
        return _summarise(folder, known_beside(folder / SUMMARY), failures)


def _carry_out(
    pending: Mapping[Path, Plan],
    wanted: int,
    folder: Path,
    failures: dict[str, str],
    executor: Executor,
    say: Callable[[str], None],
) -> None:
    """Brings `failures` and the files of the comparison up to date while runs end."""
    beside = company_of(folder / SUMMARY, pending, executor)
    done = wanted - len(pending)
    with (
        kept_up_to_date(lambda: _write(folder, beside, failures), say, beside, pending) as summary,
        closing(executor.settle(pending, lambda path, line: say(f"{path.name}: {line}"))) as outcomes,
    ):
        for path, problem in outcomes:
            done += 1
            if problem is not None:
                failures[path.name] = problem
            summary.write_if_possible()
            say(f"{path.name} {f'failed: {problem}' if problem else 'finished'} ({done} of {wanted} runs)")


def read_comparison(folder: str | Path) -> Comparison:
    """The finished runs that lie in a folder, from their files alone."""
    place = Path(folder)
    require_folder(place, "the folder of a comparison")
    stopped = [path.name for path in sorted(place.iterdir()) if RunFolder(path).status() == "unfinished"]
    comparison = _summarise(place, known_beside(place / SUMMARY), dict.fromkeys(stopped, "not finished"))
    if not comparison.rows:
        raise ValueError(f"{place} holds no finished run: give the folder of a comparison")
    return comparison


def _read_runs(folder: Path, beside: Mapping[str, bool]) -> tuple[list[RunFiles], dict[str, str]]:
    """The contents of every finished run in a folder, and what is wrong with those that are damaged."""
    runs: list[RunFiles] = []
    damaged: dict[str, str] = {}
    for run in (RunFolder(path) for path in sorted(folder.iterdir()) if path.is_dir()):
        if run.status() == "finished":
            try:
                runs.append(replace(read_run(run), side_by_side=beside.get(run.path.name, False)))
            except DamagedRun as error:
                damaged[run.path.name] = str(error)
    return runs, damaged


def name_of(plan: Plan) -> str:
    """A method with its options as the name of a folder.

    >>> name_of(Plan("head_only", "digits", options={"intra": 1, "inter": 0}))
    'head_only-inter=0,intra=1'
    """
    options = ",".join(f"{name}={value}" for name, value in sorted(plan.options.items()))
    return re.sub(r"[^\w.,=+-]", "_", f"{plan.method}-{options}" if options else plan.method)


def _named(plans: Sequence[Plan]) -> dict[str, Plan]:
    named = {name_of(plan): plan for plan in plans}
    if len(named) < len(plans):
        twice = next(name for name in named if [name_of(plan) for plan in plans].count(name) > 1)
        raise ValueError(f"{twice} is there twice: give each method with its options once")
    return named


def _require_fair(plans: Sequence[Plan], seeds: Sequence[int], jobs: int) -> None:
    if not plans or not seeds:
        raise ValueError("a comparison needs at least one method and one seed")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds {', '.join(map(str, seeds))} hold one twice: give each seed once")
    require_jobs(jobs)
    # Whether backbones fit is seen when they are open.
    own: dict[str, Any] = {"method": "", "options": {}, "seed": 0, "backbone": ""}
    for plan in plans:
        if replace(plan, **own) != replace(plans[0], **own):
            raise ValueError(
                f"{name_of(plan)} is planned on another stream than {name_of(plans[0])}: give both the same"
            )


def _prepare(plans: Mapping[str, Plan]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """What runs of each plan write as their config, but for the seed; and what is wrong with plans that cannot run."""
    configs: dict[str, dict[str, Any]] = {}
    mistakes: dict[str, str] = {}
    for name, plan in plans.items():
        try:
            config = set_up(plan).config
        except Exception as error:
            mistakes[name] = sentence_of(error)
            continue
        other = _first_difference(config, _reference(configs, config))
        if other is None:
            configs[name] = config
        else:
            setting, mine, others = other
            mistakes[name] = (
                f"its options make {setting} {mine!r}, which is {others!r} for the other methods: give all the same"
            )
    if not configs:
        alike = len(set(mistakes.values())) == 1
        lines = [mistake if alike else f"{name}: {mistake}" for name, mistake in mistakes.items()]
        raise ValueError("; ".join(dict.fromkeys(lines)))
    return configs, mistakes


def _require_room(folder: Path, plans: Mapping[str, Plan], configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Runs that lie in the folder must be on the stream asked for, and those of a method asked for be of its plan."""
    if not folder.is_dir():
        return
    for run in map(RunFolder, sorted(folder.iterdir())):
        if run.status() not in ("finished", "unfinished"):
            continue
        try:
            there = run.read(run.config)
        except DamagedRun:
            continue  # it is told as a run that failed
        name = run.path.name.removesuffix(f"-seed{there['seed']}")
        if name in configs:
            require_same_plan(plans[name], {**configs[name], "seed": there["seed"]}, run)
        difference = _first_difference(there, _reference(configs, there))
        if difference is not None:
            setting, found, wanted = difference
            raise ValueError(
                f"{run.path} holds a run with {setting} {found!r}, asked for is {wanted!r}: choose another --out"
            )


def _reference(configs: Mapping[str, Mapping[str, Any]], otherwise: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config that all others are held against: one with a network that all share, if there is such a one."""
    shared = (config for config in configs.values() if not from_scratch(config))
    return next(shared, next(iter(configs.values()), otherwise))


def _first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting in which the streams of two configs differ, with both values."""
    return next(((name, *values) for name, values in stream_differences(one, other).items()), None)


def _summarise(folder: Path, beside: Mapping[str, bool], failures: Mapping[str, str]) -> Comparison:
    runs, damaged = _read_runs(folder, beside)
    return Comparison(describe_stream(runs) if runs else "nothing yet", compare_runs(runs), {**failures, **damaged})


def _write(folder: Path, beside: Mapping[str, bool], failures: Mapping[str, str]) -> None:
    comparison = _summarise(folder, beside, failures)
    page = comparison_markdown(comparison.headline, comparison.rows, comparison.failure_lines())
    write_json(folder / SUMMARY, asdict(comparison) | {BESIDE: dict(beside)})
    write_text(folder / PAGE, page)
