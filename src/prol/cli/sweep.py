"""`prol sweep`: a grid of settings, each run once with each seed, and the best of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prol.cli import arguments as a
from prol.cli.terminal import PatientConsole, output

if TYPE_CHECKING:
    from prol.report.sweep import SweepRun
    from prol.runs.grid import Request
    from prol.runs.sweep import Sweep

FAILED = 1


@a.with_flags
def sweep(
    flags: a.PlanFlags,
    execution: a.ExecutorFlags,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD[:KEY=VALUE,...]... DATASET...",
            help="Names that `prol methods` and `prol datasets` list; options after a colon are not varied.",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,...",
            help="Values to try: lr (of all methods that have it), prol.length (of one), chunk, tasks, protocol, "
            "protocol.OPTION, data.OPTION. lr=paper is the paper's grid. Repeatable.",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(help="Each setting runs once with each seed; separate seeds by commas. By default 0,1,2."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="A TOML file that describes the sweep; flags take precedence.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the runs. By default runs/sweep-DATASET.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs and start none.")] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[DATASET=]PATH",
            help="The path of the images; with the data set's name if there are several.",
            rich_help_panel="The data",
        ),
    ] = None,
) -> None:
    """Run methods with every combination of settings, and show which are best.

    Finished runs are reused and unfinished ones resumed: the same command resumes an interrupted sweep.
    """
    from prol.runs import display_for
    from prol.runs.grid import Request, checked_settings, parse_axis, points_of, read_sweep_file, replaced_by_flags
    from prol.runs.sweep import look_at
    from prol.runs.sweep import sweep as run_sweep

    console = output()
    request = Request([], []) if file is None else read_sweep_file(file)
    methods, datasets = sort_words(words or [])
    given = flags.given()
    options = {"protocol": given.pop("protocol_options", {}), "data": given.pop("dataset_options", {})}
    axes: dict[str, Sequence[Any]] = {}
    for name, values in map(parse_axis, grid or []):
        if name in axes:
            raise ValueError(f"--grid {name} is given twice: give all its values at once")
        axes[name] = values
    axes |= {f"{owner}.{name}": [value] for owner, pairs in options.items() for name, value in pairs.items()}
    request = replaced_by_flags(request, methods, datasets, axes, checked_settings(given, "flags"))
    chosen = request.seeds if seeds is None else a.read_seeds(seeds)
    request = replace(request, seeds=chosen, data={**request.data, **_places(data or [], request)})
    runs = points_of(request)
    folder = out or Path("runs") / f"sweep-{'-'.join(request.datasets)}"
    executor = execution.open(display_for(console))
    if dry_run:
        _list(look_at(runs, folder), folder, console)
        return
    with console.resumable():
        finished = run_sweep(runs, folder, executor, console.say)
    _print(finished, runs[0].plan.development, console)
    console.say(f"Runs, sweep.json, sweep.md and sweep.csv written to {folder}")
    if finished.failures():
        raise typer.Exit(FAILED)


def sort_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Methods and data sets, distinguished by their names."""
    from prol import registry
    from prol.options import did_you_mean
    from prol.runs.plan import read_method

    methods, datasets = registry.names("methods"), registry.names("datasets")
    for word in words:
        name = word if word in datasets else read_method(word)[0]
        if word not in datasets and not registry.is_method(name):
            known = methods if ":" in word else methods | datasets
            hint = did_you_mean(name, known)
            raise ValueError(f"{word!r} is neither a method nor a data set{hint}; see prol methods and prol datasets")
    return [word for word in words if word not in datasets], [word for word in words if word in datasets]


def _places(data: Sequence[str], request: Request) -> dict[str, str]:
    places: dict[str, str] = {}
    for text in data:
        name, equals, place = text.partition("=")
        if not equals or name not in request.datasets:
            if not request.datasets:
                raise ValueError(f"--data {text}: no data set is named; `prol datasets` lists them")
            if len(request.datasets) > 1:
                raise ValueError(f"--data {text}: there are several data sets; write it as --data DATASET=PATH")
            name, place = request.datasets[0], text
        if name in places:
            raise ValueError(f"--data for {name} is given twice")
        places[name] = place
    return places


def _list(runs: Mapping[str, SweepRun], folder: Path, console: PatientConsole) -> None:
    for name, run in runs.items():
        console.say(f"{run.state:>11}  {name}")
    count = {state: sum(run.state == state for run in runs.values()) for state in ("finished", "unfinished")}
    new = len(runs) - sum(count.values())
    console.say(
        f"{len(runs)} runs in {folder}: {count['finished']} finished, {count['unfinished']} to resume, {new} to start"
    )


def _print(finished: Sweep, development: bool, console: PatientConsole) -> None:
    from prol.report.sweep import ON_TEST, best_table

    for name, problem in finished.failures().items():
        typer.echo(f"prol: {name}: {problem}", err=True)
    if not any(run.state == "finished" for run in finished.runs):
        return
    console.widen()
    console.print(best_table(finished.runs))
    if not development:
        console.say(ON_TEST)
