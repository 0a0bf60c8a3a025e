"""A grid of runs that do not depend on each other: begun, taken up again, and summed up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

from prol.artifacts.atomic import write_json, write_text
from prol.artifacts.folders import at_work_in
from prol.backbones import open_backbone
from prol.experiments.executors import Executor
from prol.experiments.grid import Point
from prol.experiments.method_words import spell, spell_method
from prol.experiments.one_run import read_run
from prol.experiments.planned import folder_name, named_settings, require_planned
from prol.experiments.summary import BESIDE, company_of, kept_up_to_date
from prol.experiments.told_lines import say_nothing
from prol.report.comparison import compare_runs
from prol.report.sweep import (
    Setting,
    State,
    SweepRun,
    best_of,
    settings_of,
    sweep_content,
    sweep_csv,
    sweep_markdown,
)
from prol.runs import RunFolder
from prol.runs.folder import DamagedRun
from prol.runs.setup import look_up, open_data

SUMMARY, PAGE, ROWS = "sweep.json", "sweep.md", "sweep.csv"
_NOT_FLAGS = ("development", "device", "threads", "workers")


@dataclass(frozen=True)
class Sweep:
    """All runs that were asked for, finished or not."""

    runs: list[SweepRun]

    def failures(self) -> dict[str, str]:
        return {run.folder: run.problem for run in self.runs if run.problem is not None}


def look_at(points: Sequence[Point], out: str | Path) -> dict[str, SweepRun]:
    """The runs of a sweep by the names of their folders, as far as they are; begins nothing.

    Names and options of all of them are checked, that their data are there, and that what lies in the folder is theirs.
    """
    found: dict[str, SweepRun] = {}
    opened: set[str] = set()
    for point in points:
        plan = point.plan
        named, name = look_up(plan), folder_name(plan)
        run = RunFolder(Path(out) / name)
        if run.config.is_file():
            with suppress(DamagedRun):  # it is told as a run that failed
                require_planned(plan, run)
        data = repr((plan.dataset, plan.data, named.dataset_options, plan.development, plan.limit_per_class))
        if data not in opened:
            open_data(plan, named)
            opened.add(data)
        about = SweepRun(name, plan.dataset, dict(point.condition), plan.method, dict(plan.options), plan.seed)
        found[name] = _as_it_is(about, run)
    pending = [point for name, point in zip(found, points, strict=True) if found[name].state != "finished"]
    for network in sorted({point.plan.backbone for point in pending} - {"auto"}):
        open_backbone(network, shapes_only=True)
    return found


def sweep(
    points: Sequence[Point], out: str | Path, executor: Executor, say: Callable[[str], None] | None = None
) -> Sweep:
    """Carries out each run in a folder of its own under `out`, and writes `sweep.json`, `.md` and `.csv` there.

    Finished runs are kept and unfinished ones go on. A run that fails does not stop the others. The three files are
    written anew after each run.

    Args:
        say: is given lines about how the whole gets on.
    """
    folder, say = Path(out), say or say_nothing
    asked = look_at(points, folder)  # mistakes are told before a folder is made
    with at_work_in(folder):
        # Another sweep may have been at work here until now.
        runs = {name: _as_it_is(run, RunFolder(folder / name)) for name, run in asked.items()}
        _carry_out(points, runs, folder, executor, say)
    return Sweep(list(runs.values()))


def _carry_out(
    points: Sequence[Point],
    runs: dict[str, SweepRun],
    folder: Path,
    executor: Executor,
    say: Callable[[str], None],
) -> None:
    """Brings `runs` up to date while they end."""
    plans = {folder / name: point.plan for name, point in zip(runs, points, strict=True)}
    pending = {path: plan for path, plan in plans.items() if runs[path.name].state != "finished"}
    done = kept = len(plans) - len(pending)
    if kept:
        say(f"{kept} of {len(plans)} runs are finished already")
    if left_out := _left_out(folder, runs):
        say(
            f"finished runs of an earlier sweep in {folder} that are not asked for now: {left_out}; {SUMMARY}, {PAGE} "
            f"and {ROWS} are without them until a sweep asks for all at once"
        )
    beside = company_of(folder / SUMMARY, pending, executor)
    began = time.monotonic()
    with (
        kept_up_to_date(lambda: _write(folder, runs, points, beside), say, beside, pending) as summary,
        closing(executor.settle(pending, lambda path, line: say(f"{path.name}: {line}"))) as outcomes,
    ):
        for path, problem in outcomes:
            done += 1
            state = _as_it_is(runs[path.name], RunFolder(path))
            runs[path.name] = state if problem is None else replace(state, state="failed", problem=problem)
            summary.write_if_possible()
            left = (time.monotonic() - began) / (done - kept) * (len(plans) - done)
            problem = runs[path.name].problem
            what = "finished" if problem is None else f"failed: {problem}"
            say(f"{path.name} {what} ({done} of {len(plans)} runs{_to_go(left)})")


def commands_to_test(points: Sequence[Point], best: Sequence[Setting]) -> list[str]:
    """How to measure chosen settings on the test images: one command a data set and condition."""
    groups: dict[tuple[str, str], list[Setting]] = {}
    for one in best:
        groups.setdefault((one.dataset, repr(one.condition)), []).append(one)
    seeds = ",".join(map(str, dict.fromkeys(point.plan.seed for point in points)))
    commands = []
    for (dataset, condition), settings in groups.items():
        plan = next(p.plan for p in points if p.plan.dataset == dataset and repr(dict(p.condition)) == condition)
        words = [quote(spell_method(one.method, one.options)) for one in settings]
        flags = [_flag(name, value) for name, value in named_settings(plan).items() if name not in _NOT_FLAGS]
        data = [] if plan.data is None else ["--data", quote(plan.data)]
        under = "".join(f"-{name}={spell(value)}" for name, value in sorted(settings[0].condition.items()))
        data += ["--out", quote(f"runs/compare-{dataset}{under.replace('/', '_')}")]
        commands.append(" ".join(["prol compare", *words, dataset, "--seeds", seeds, *data, *flags]))
    return commands


def _flag(name: str, value: Any) -> str:
    owner, dot, option = name.partition(".")
    if dot:
        return f"{'-P' if owner == 'protocol' else '-D'} {quote(f'{option}={spell(value)}')}"
    flag = name.replace("_", "-")
    return f"--{'' if value else 'no-'}{flag}" if isinstance(value, bool) else f"--{flag} {quote(spell(value))}"


def _as_it_is(about: SweepRun, run: RunFolder) -> SweepRun:
    status = run.status()
    if status != "finished":
        state: State = "unfinished" if status == "unfinished" else "not begun"
        return replace(about, state=state)
    try:
        row = compare_runs([read_run(run)])[0]
    except DamagedRun as error:
        return replace(about, state="failed", problem=str(error))
    return replace(
        about,
        state="finished",
        faa=row.faa.mean,
        caa=row.caa.mean,
        forgetting=row.forgetting.mean,
        images_per_second=row.images_per_second,
    )


def _left_out(folder: Path, runs: Mapping[str, SweepRun]) -> int:
    """How many finished runs a summary lists that is about to be replaced by one without them."""
    try:
        listed = [run["folder"] for run in json.loads((folder / SUMMARY).read_text(encoding="utf-8"))["runs"]]
        return sum(RunFolder(folder / name).status() == "finished" for name in listed if name not in runs)
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _write(folder: Path, found: Mapping[str, SweepRun], points: Sequence[Point], beside: Mapping[str, bool]) -> None:
    runs, development = list(found.values()), points[0].plan.development
    write_json(folder / SUMMARY, sweep_content(runs, development) | {BESIDE: dict(beside)})
    commands = commands_to_test(points, best_of(settings_of(runs))) if development else []
    for name, text in {PAGE: sweep_markdown(runs, development, commands), ROWS: sweep_csv(runs)}.items():
        write_text(folder / name, text)


def _to_go(seconds: float) -> str:
    if seconds <= 0:
        return ""
    return f", about {seconds:.0f} s to go" if seconds < 90 else f", about {seconds / 60:.0f} min to go"
