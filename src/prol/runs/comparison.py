"""Several methods on the same stream, with the same seeds, each run in its own folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from prol.files import locked_folder, require_folder, write_json, write_text
from prol.method_files import label
from prol.report.comparison import (
    Row,
    compare_runs,
    comparison_markdown,
    describe_stream,
    from_scratch,
    stream_differences,
)
from prol.runfiles import RunFiles
from prol.runs.display import Display, Silent
from prol.runs.executors import Executor, LocalProcesses, Say, Serial, Summary, read_finished, run_all, sentence_of
from prol.runs.folder import DamagedRun, RunFolder
from prol.runs.inspection import Inspection, require_planned
from prol.runs.plan import Plan

SUMMARY, PAGE = "comparison.json", "comparison.md"


@dataclass(frozen=True)
class Comparison:
    """All finished runs of a folder as rows, best first, and the missing runs with the reasons."""

    headline: str
    rows: list[Row]
    failures: dict[str, str]

    def failure_lines(self) -> list[str]:
        """One line per reason."""
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
    say: Say | None = None,
    executor: Executor | None = None,
) -> Comparison:
    """Runs each plan with each seed in `out/NAME-seedN`, and writes `out/comparison.json` and `.md`.

    Finished runs in the folder are reused and unfinished ones resumed, if they are of the same plan. A run that fails
    does not stop the others. The comparison covers every finished run of the folder, so that it can grow.

    Args:
        plans: one per method, equal in all but method and options; their own seeds have no effect.
        jobs: the number of runs at the same time; results do not depend on it, speeds do.
        display: shows a run while it is the only one.
        say: receives lines about the progress.
        executor: where the runs are executed; by default here, according to `jobs` and `display`.
    """
    folder, say = Path(out), say or (lambda _: None)
    if executor is None:
        executor = Serial(display or Silent()) if jobs == 1 else LocalProcesses(jobs)
    _require_fair(plans, seeds)
    named = _named(plans)
    outlines, mistakes = _inspect(named)
    _require_room(folder, named, outlines)
    failures = {f"{name}-seed{seed}": mistake for name, mistake in mistakes.items() for seed in seeds}
    runs = {folder / f"{name}-seed{seed}": replace(named[name], seed=seed) for seed in seeds for name in outlines}
    for name, mistake in mistakes.items():
        say(f"{name} is left out: {mistake}")

    def ended(path: Path, problem: str | None) -> str | None:
        if problem is not None:
            failures[path.name] = problem
        return problem

    with locked_folder(folder):
        run_all([(executor, runs)], [Summary(SUMMARY, lambda: _write(folder, failures))], say, ended)
        return _summarise(folder, failures)[0]


def read_comparison(folder: str | Path) -> Comparison:
    """The finished runs in a folder, from their files alone."""
    place = Path(folder)
    require_folder(place, "the folder of a comparison")
    stopped = [path.name for path in sorted(place.iterdir()) if RunFolder(path).status() == "unfinished"]
    comparison, _ = _summarise(place, dict.fromkeys(stopped, "not finished"))
    if not comparison.rows:
        raise ValueError(f"{place} holds no finished run: give the folder of a comparison")
    return comparison


def name_of(plan: Plan) -> str:
    """A method with its options as the name of a folder.

    >>> name_of(Plan("head_only", "digits", options={"intra": 1, "inter": 0}))
    'head_only-inter=0,intra=1'
    """
    options = ",".join(f"{name}={value}" for name, value in sorted(plan.options.items()))
    return re.sub(r"[^\w.,=+-]", "_", f"{label(plan.method)}-{options}" if options else label(plan.method))


def _named(plans: Sequence[Plan]) -> dict[str, Plan]:
    names = [name_of(plan) for plan in plans]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"{name} is there twice: give each method with its options once")
    return dict(zip(names, plans, strict=True))


def _require_fair(plans: Sequence[Plan], seeds: Sequence[int]) -> None:
    if not plans or not seeds:
        raise ValueError("a comparison needs at least one method and one seed")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds {', '.join(map(str, seeds))} hold one twice: give each seed once")
    # Backbones are compared when they are open.
    own: dict[str, Any] = {"method": "", "options": {}, "seed": 0, "backbone": ""}
    for plan in plans:
        if replace(plan, **own) != replace(plans[0], **own):
            raise ValueError(
                f"{name_of(plan)} is planned on another stream than {name_of(plans[0])}: give both the same"
            )


def _inspect(plans: Mapping[str, Plan]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The outline of each plan's config, and the mistakes of plans that cannot run."""
    inspection = Inspection()
    outlines: dict[str, dict[str, Any]] = {}
    mistakes: dict[str, str] = {}
    for name, plan in plans.items():
        try:
            known = inspection.outline(plan)
        except Exception as error:
            mistakes[name] = sentence_of(error)
            continue
        difference = _first_difference(known, _reference(outlines, known))
        if difference is None:
            outlines[name] = known
        else:
            setting, mine, others = difference
            mistakes[name] = (
                f"its options make {setting} {mine!r}, which is {others!r} for the other methods: give all the same"
            )
    if not outlines:
        alike = len(set(mistakes.values())) == 1
        lines = [mistake if alike else f"{name}: {mistake}" for name, mistake in mistakes.items()]
        raise ValueError("; ".join(dict.fromkeys(lines)))
    return outlines, mistakes


def _require_room(folder: Path, plans: Mapping[str, Plan], outlines: Mapping[str, Mapping[str, Any]]) -> None:
    """Runs in the folder must be on the same stream, and those of a planned method be of its plan."""
    if not folder.is_dir():
        return
    for run in map(RunFolder, sorted(folder.iterdir())):
        if run.status() not in ("finished", "unfinished"):
            continue
        try:
            there = run.read(run.config)
        except DamagedRun:
            continue  # it is reported as a failed run
        name = run.path.name.removesuffix(f"-seed{there['seed']}")
        if name in outlines:
            require_planned(replace(plans[name], seed=there["seed"]), run)
        difference = _first_difference(there, _reference(outlines, there))
        if difference is not None:
            setting, found, wanted = difference
            raise ValueError(
                f"{run.path} holds a run with {setting} {found!r}, requested is {wanted!r}: choose another --out"
            )


def _reference(outlines: Mapping[str, Mapping[str, Any]], otherwise: Mapping[str, Any]) -> Mapping[str, Any]:
    """The config with which others are compared: preferably one with a pre-trained network, which all share."""
    shared = (known for known in outlines.values() if not from_scratch(known))
    return next(shared, next(iter(outlines.values()), otherwise))


def _first_difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting in which the streams of two configs differ, with both values."""
    return next(((name, *values) for name, values in stream_differences(one, other).items()), None)


def _summarise(folder: Path, failures: Mapping[str, str]) -> tuple[Comparison, list[RunFiles]]:
    runs: list[RunFiles] = []
    damaged: dict[str, str] = {}
    for run in (RunFolder(path) for path in sorted(folder.iterdir()) if path.is_dir()):
        if run.status() == "finished":
            try:
                runs.append(read_finished(run))
            except DamagedRun as error:
                damaged[run.path.name] = str(error)
    headline = describe_stream(runs) if runs else "nothing yet"
    return Comparison(headline, compare_runs(runs), {**failures, **damaged}), runs


def _write(folder: Path, failures: Mapping[str, str]) -> None:
    comparison, runs = _summarise(folder, failures)
    beside = {run.folder: True for run in runs if run.side_by_side}
    write_json(folder / SUMMARY, asdict(comparison) | {"side_by_side": beside})
    write_text(folder / PAGE, comparison_markdown(comparison.headline, comparison.rows, comparison.failure_lines()))
