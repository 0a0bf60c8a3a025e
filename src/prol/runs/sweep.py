"""A grid of independent runs: executed, resumed and summarised."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from shlex import quote
from typing import Any

from prol.backbones import open_backbone
from prol.files import locked_folder, read_text, write_json, write_text
from prol.method_files import label
from prol.options import spell, spell_method, spell_options
from prol.report.comparison import compare_runs
from prol.report.sweep import Setting, SweepRun, best_of, settings_of, sweep_content, sweep_csv, sweep_markdown
from prol.runs.executors import Executor, Say, Summary, read_finished, run_all
from prol.runs.folder import DamagedRun, RunFolder
from prol.runs.grid import CONDITIONS, GridPoint
from prol.runs.inspection import require_planned
from prol.runs.plan import Plan
from prol.runs.setup import look_up, open_data

SUMMARY, PAGE, ROWS = "sweep.json", "sweep.md", "sweep.csv"
_NOT_FLAGS = ("development", "device", "threads", "workers")
_LONGEST, _PREFIX = 120, 80
_DEFAULTS = {field.name: field.default for field in fields(Plan)}


@dataclass(frozen=True)
class Sweep:
    """All planned runs, finished or not."""

    runs: list[SweepRun]

    def failures(self) -> dict[str, str]:
        return {run.folder: run.problem for run in self.runs if run.problem is not None}


def look_at(points: Sequence[GridPoint], out: str | Path) -> dict[str, SweepRun]:
    """The runs of a sweep by the names of their folders, with their states; starts nothing.

    Checks names and options of all runs, that their data exist, and that runs in the folder are theirs.
    """
    found: dict[str, SweepRun] = {}
    opened: set[str] = set()
    for point in points:
        plan = point.plan
        named, name = look_up(plan), folder_name(plan)
        run = RunFolder(Path(out) / name)
        if run.config.is_file():
            with suppress(DamagedRun):  # it is reported as a failed run
                require_planned(plan, run)
        data = repr((plan.dataset, plan.data, named.dataset_options, plan.development, plan.limit_per_class))
        if data not in opened:
            open_data(plan, named)
            opened.add(data)
        planned = SweepRun(name, plan.dataset, dict(point.condition), plan.method, dict(plan.options), plan.seed)
        found[name] = _current(planned, run)
    pending = [point for name, point in zip(found, points, strict=True) if found[name].state != "finished"]
    for network in sorted({point.plan.backbone for point in pending} - {"auto"}):
        open_backbone(network, shapes_only=True)
    return found


def sweep(points: Sequence[GridPoint], out: str | Path, executor: Executor, say: Say | None = None) -> Sweep:
    """Executes each run in its own folder under `out`, and writes `sweep.json`, `.md` and `.csv` there.

    Finished runs are reused and unfinished ones resumed. A run that fails does not stop the others. The three files are
    updated after each run.

    Args:
        say: receives lines about the progress.
    """
    folder, say = Path(out), say or (lambda _: None)
    planned = look_at(points, folder)  # mistakes are reported before a folder is made
    with locked_folder(folder):
        # Another sweep may have been running here until now.
        runs = {name: _current(run, RunFolder(folder / name)) for name, run in planned.items()}
        plans = {folder / name: point.plan for name, point in zip(runs, points, strict=True)}
        if left_out := _left_out(folder, runs):
            say(
                f"finished runs of an earlier sweep in {folder} that are not requested now: {left_out}; {SUMMARY}, "
                f"{PAGE} and {ROWS} are without them until a sweep requests all at once"
            )

        def ended(path: Path, problem: str | None) -> str | None:
            run = _current(runs[path.name], RunFolder(path))
            runs[path.name] = run if problem is None else replace(run, state="failed", problem=problem)
            return runs[path.name].problem

        run_all(
            [(executor, plans)],
            [Summary(SUMMARY, lambda: _write(folder, list(runs.values()), points))],
            say,
            ended,
            is_finished=lambda path: runs[path.name].state == "finished",
        )
    return Sweep(list(runs.values()))


def folder_name(plan: Plan) -> str:
    """All settings of a run in words; if they are many, the first of them and a hash of all.

    >>> folder_name(Plan("prol", "digits", options={"lr": 0.01, "length": 3}, chunk=50, development=True, seed=2))
    'prol-length=3,lr=0.01-digits-chunk=50,development=true-seed2'
    """
    settings = named_settings(plan)
    parts = (label(plan.method), spell_options(plan.options), plan.dataset, spell_options(settings))
    plain = "-".join(filter(None, parts))
    safe = re.sub(r"[^\w.,=+-]", "_", plain)
    if safe != plain or len(safe) > _LONGEST:
        content = json.dumps([label(plan.method), dict(plan.options), plan.dataset, settings], sort_keys=True)
        safe = f"{safe[:_PREFIX]}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    return f"{safe}-seed{plan.seed}"


def named_settings(plan: Plan) -> dict[str, Any]:
    """Settings of data and stream that differ from the defaults, by the names of their flags."""
    wanted = (*CONDITIONS, "development")
    settings = {name: getattr(plan, name) for name in wanted if getattr(plan, name) != _DEFAULTS[name]}
    settings |= {f"protocol.{name}": value for name, value in plan.protocol_options.items()}
    settings |= {f"data.{name}": value for name, value in plan.dataset_options.items()}
    return settings | ({"points": plan.measures.points} if plan.measures.points else {})


def commands_to_test(points: Sequence[GridPoint], best: Sequence[Setting]) -> list[str]:
    """Commands that measure chosen settings on the test images: one per data set and condition."""
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


def _current(planned: SweepRun, run: RunFolder) -> SweepRun:
    status = run.status()
    if status != "finished":
        return replace(planned, state="unfinished" if status == "unfinished" else "not begun")
    try:
        row = compare_runs([read_finished(run)])[0]
    except DamagedRun as error:
        return replace(planned, state="failed", problem=str(error))
    return replace(
        planned,
        state="finished",
        faa=row.faa.mean,
        caa=row.caa.mean,
        forgetting=row.forgetting.mean,
        images_per_second=row.images_per_second,
        side_by_side=row.side_by_side,
    )


def _left_out(folder: Path, runs: Mapping[str, SweepRun]) -> int:
    """The number of finished runs that the current summary lists and the next one will not."""
    try:
        listed = [run["folder"] for run in json.loads(read_text(folder / SUMMARY))["runs"]]
        return sum(RunFolder(folder / name).status() == "finished" for name in listed if name not in runs)
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _write(folder: Path, runs: Sequence[SweepRun], points: Sequence[GridPoint]) -> None:
    development = points[0].plan.development
    write_json(folder / SUMMARY, sweep_content(runs, development))
    commands = commands_to_test(points, best_of(settings_of(runs))) if development else []
    for name, text in {PAGE: sweep_markdown(runs, development, commands), ROWS: sweep_csv(runs)}.items():
        write_text(folder / name, text)
