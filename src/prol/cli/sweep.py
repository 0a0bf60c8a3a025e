"""`prol sweep`: a grid of settings, each run once with each seed, and the best of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prol.cli import arguments as a
from prol.cli import executing as e

if TYPE_CHECKING:
    from rich.console import Console

    from prol.experiments.grid import Request
    from prol.experiments.sweep import Sweep
    from prol.report.sweep import SweepRun

FAILED = 1
_WIDE_ENOUGH = 200


def sweep(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD[:KEY=VALUE,...]... DATASET...",
            help="Names that `prol methods` and `prol datasets` list; options behind a colon are not varied.",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Values to try; may be repeated. lr (of all methods that have it), prol.length (of one), chunk, "
            "tasks, protocol, protocol.OPTION, data.OPTION. lr=paper is the paper's grid.",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Each setting runs once with each, separated by commas; 0,1,2 by default.")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="A TOML file with the same; flags come before it.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; runs/sweep-DATASET by default.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and begin none.")] = False,
    executor: e.Place = "local",
    jobs: e.Jobs = None,
    retries: e.Retries = 2,
    ray_address: e.RayAddress = None,
    cpus_per_run: e.CpusPerRun = None,
    gpus_per_run: e.GpusPerRun = None,
    memory_per_run: e.MemoryPerRun = None,
    backbone: Annotated[str | None, typer.Option(help="As in prol run; the method's own by default.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or cuda:N.")] = None,
    precision: Annotated[str | None, typer.Option(help="auto, float32, float64 or bf16.")] = None,
    threads: a.Threads = None,
    workers: a.Workers = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Chunks between checkpoints; 50 by default.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[DATASET=]PATH",
            help="Where the images are; with the data set's name where there are several.",
            rich_help_panel="The data",
        ),
    ] = None,
    data_options: a.DataOptions = None,
    development: Annotated[
        bool | None,
        typer.Option(
            help="Learn a fifth of the training images and test on another fifth, to choose settings on.",
            rich_help_panel="The data",
        ),
    ] = None,
    limit_per_class: a.LimitPerClass = None,
    protocol: Annotated[
        str | None, typer.Option(help="As in prol run; disjoint by default.", rich_help_panel="The stream")
    ] = None,
    protocol_options: a.ProtocolOptions = None,
    tasks: a.Tasks = None,
    chunk: Annotated[
        int | None, typer.Option(help="How many samples arrive together; 10 by default.", rich_help_panel="The stream")
    ] = None,
    class_order: Annotated[str | None, typer.Option(help="label or shuffled.", rich_help_panel="The stream")] = None,
    boundaries: a.Boundaries = None,
    announce: a.Announce = None,
    points: Annotated[int | None, typer.Option(help="As in prol compare.", rich_help_panel="The stream")] = None,
) -> None:
    """Run methods with every combination of settings, and say which are best.

    Finished runs are kept, stopped ones go on: the same command takes up a stopped sweep.
    """
    from prol.cli.compare import read_seeds
    from prol.cli.terminal import output
    from prol.experiments.grid import Request, parse_axis, points_of
    from prol.experiments.sweep import look_at
    from prol.experiments.sweep import sweep as experiment
    from prol.experiments.sweep_file import checked_settings, read_sweep_file, replaced_by_flags
    from prol.options import parse_pairs
    from prol.runs import display_for

    console = output()
    asked = Request([], []) if file is None else read_sweep_file(file)
    methods, datasets = sort_words(words or [])
    flags: dict[str, Any] = {
        "backbone": backbone,
        "device": device,
        "precision": precision,
        "threads": threads,
        "workers": workers,
        "checkpoint_every": checkpoint_every,
        "development": development,
        "limit_per_class": limit_per_class,
        "protocol": protocol,
        "tasks": tasks,
        "chunk": chunk,
        "class_order": class_order,
        "boundaries": boundaries,
        "announce": announce,
        "points": points,
    }
    given = checked_settings({name: value for name, value in flags.items() if value is not None}, "flags")
    axes: dict[str, Sequence[Any]] = {}
    for name, values in map(parse_axis, grid or []):
        if name in axes:
            raise ValueError(f"--grid {name} is given twice: give all its values at once")
        axes[name] = values
    axes |= {f"protocol.{name}": [value] for name, value in parse_pairs(protocol_options or []).items()}
    axes |= {f"data.{name}": [value] for name, value in parse_pairs(data_options or []).items()}
    asked = replaced_by_flags(asked, methods, datasets, axes, given)
    seen = asked.seeds if seeds is None else read_seeds(seeds)
    asked = replace(asked, seeds=seen, data={**asked.data, **_places(data or [], asked)})
    runs = points_of(asked)
    folder = out or Path("runs") / f"sweep-{'-'.join(asked.datasets)}"
    place = e.open_executor(
        executor, display_for(console), jobs, retries, ray_address, cpus_per_run, gpus_per_run, memory_per_run
    )
    if dry_run:
        _list(look_at(runs, folder), folder, console)
        return
    try:
        finished = experiment(runs, folder, place, lambda line: console.print(line, soft_wrap=True))
    except KeyboardInterrupt:
        console.print("stopped: the same command goes on from here", soft_wrap=True)
        raise
    _print(finished, runs[0].plan.development, console)
    console.print(f"Runs, sweep.json, sweep.md and sweep.csv written to {folder}", soft_wrap=True)
    if finished.failures():
        raise typer.Exit(FAILED)


def sort_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Methods and data sets, told apart by their names."""
    from difflib import get_close_matches

    from prol import registry

    methods, datasets = registry.names("methods"), registry.names("datasets")
    for word in words:
        name = word.partition(":")[0]
        if name not in methods and word not in datasets:
            known = methods if ":" in word else methods | datasets
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{word!r} is neither a method nor a data set{hint}; see prol methods and prol datasets")
    return [word for word in words if word not in datasets], [word for word in words if word in datasets]


def _places(data: Sequence[str], asked: Request) -> dict[str, str]:
    """Where the files of each data set are."""
    places: dict[str, str] = {}
    for text in data:
        name, equals, place = text.partition("=")
        if not equals or name not in asked.datasets:
            if not asked.datasets:
                raise ValueError(f"--data {text}: no data set is named; `prol datasets` lists them")
            if len(asked.datasets) > 1:
                raise ValueError(f"--data {text}: there are several data sets; write it as --data DATASET=PATH")
            name, place = asked.datasets[0], text
        if name in places:
            raise ValueError(f"--data for {name} is given twice")
        places[name] = place
    return places


def _list(runs: Mapping[str, SweepRun], folder: Path, console: Console) -> None:
    for name, run in runs.items():
        console.print(f"{run.state:>11}  {name}", soft_wrap=True)
    count = {state: sum(run.state == state for run in runs.values()) for state in ("finished", "unfinished")}
    begin = len(runs) - sum(count.values())
    console.print(
        f"{len(runs)} runs in {folder}: {count['finished']} finished, {count['unfinished']} to go on, {begin} to begin",
        soft_wrap=True,
    )


def _print(finished: Sweep, development: bool, console: Console) -> None:
    from prol.report.sweep import ON_TEST, best_table

    for name, problem in finished.failures().items():
        typer.echo(f"prol: {name}: {problem}", err=True)
    if not any(run.state == "finished" for run in finished.runs):
        return
    if not console.is_terminal:
        console.width = max(console.width, _WIDE_ENOUGH)
    console.print(best_table(finished.runs))
    if not development:
        console.print(ON_TEST, soft_wrap=True)
