"""`prol reproduce`: the paper's tables and figures, run again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prol.cli import arguments as a
from prol.cli.terminal import PatientConsole, output

if TYPE_CHECKING:
    from prol.paper.item_files import Reproduced
    from prol.paper.scale import PaperScale

FAILED = 1
_GENERATED = "generated"


@a.with_flags
def reproduce(
    execution: a.ExecutorFlags,
    items: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="Names that --list prints, or all.")] = None,
    show_items: Annotated[bool, typer.Option("--list", help="List the items and their rows, and run nothing.")] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Only write the tables of --out again, from its files.")
    ] = False,
    scale: Annotated[
        str, typer.Option(help="The scale: full (the paper's), builtin, or smoke (minutes on a processor).")
    ] = "builtin",
    out: Annotated[
        Path | None, typer.Option(help="The folder of runs and tables. By default runs/reproduce-SCALE.")
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD[:KEY=VALUE,...]", help="Run only these methods or rows. Repeatable."),
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Data sets that replace the scale's, separated by commas.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH", help="The path of a data set. Repeatable. `generated` alone: noise for timed runs."
        ),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds, separated by commas. By default the scale's.")] = None,
    backbone: Annotated[
        str | None,
        typer.Option(help="The network that replaces the scale's: small, tiny, ARCH.TAG, ARCH@FILE or ARCH@random."),
    ] = None,
    limit_per_class: a.LimitPerClass = None,
    tasks: a.Tasks = None,
    chunk: Annotated[int, typer.Option(help="How many samples arrive together.", rich_help_panel="The stream")] = 10,
    device: a.Device = "auto",
    precision: a.Precision = "auto",
    threads: a.FreeThreads = None,
    workers: a.Workers = None,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Store the learners of finished runs, not only their results.")
    ] = False,
) -> None:
    """Run the paper's tables and figures again, and compare them with what it prints.

    Finished runs are reused and unfinished ones resumed: the same command resumes an interrupted reproduction. Timed
    runs are alone on this machine, whatever the executor, and start again if they were interrupted.
    """
    from prol.backbones import pick_device
    from prol.paper.items import ITEMS, pick
    from prol.paper.reproduction import render
    from prol.paper.reproduction import reproduce as run_items
    from prol.paper.scale import read_scale
    from prol.report.plot import require_matplotlib
    from prol.runs import display_for
    from prol.runs.executors import LocalProcesses, Serial

    console = output()
    chosen = read_scale(scale)
    if show_items:
        _list(console, chosen)
        return
    if not items:
        raise ValueError(f"give an item: {', '.join(ITEMS)} or all")
    wanted, folder = pick(items), out or Path("runs") / f"reproduce-{scale}"
    require_matplotlib()  # before the runs, not after them
    if table:
        _print(render(wanted, folder), console)
        return
    chosen = _with_data(_with_datasets(_with_methods(chosen, methods or []), datasets), data or [])
    given: dict[str, Any] = {
        "limit_per_class": limit_per_class,
        "most_per_class": limit_per_class,
        "tasks": tasks,
        "backbone": backbone,
        "tiny_backbone": backbone,
        "seeds": None if seeds is None else tuple(a.read_seeds(seeds)),
    }
    chosen = replace(chosen, **{name: value for name, value in given.items() if value is not None})
    chosen = replace(chosen, chunk=chunk, device=device, precision=precision, threads=threads, workers=workers)
    display = display_for(console)
    # On a GPU torch caches a limited number of compiled steps: each run gets its own process.
    alone = Serial(display) if pick_device(device).type == "cpu" else LocalProcesses(1)
    executor = execution.open(display)
    executor = alone if isinstance(executor, Serial) else executor
    with console.resumable():
        done = run_items(wanted, chosen, folder, executor, alone, console.say, keep_models)
    _print(done, console)
    if any(one.failed or not one.finished_runs for one in done):
        raise typer.Exit(FAILED)


def _with_methods(scale: PaperScale, words: list[str]) -> PaperScale:
    """Only some methods or rows, with their own options."""
    from prol import registry
    from prol.paper.items import ITEMS
    from prol.runs.plan import read_method

    if not words:
        return scale
    wants = [want for item in ITEMS.values() for want in item.wants(scale)]
    known = {want.plan.method for want in wants} | {want.row for want in wants} | set(registry.names("methods"))
    picked: dict[str, dict[str, str]] = {}
    parts = [part for word in words for part in ([word] if ":" in word else word.split(","))]
    for part in parts:
        name, options = read_method(part) if ":" in part else (part.strip(), {})
        if name not in known:
            raise ValueError(f"unknown method or row {name!r}: `prol reproduce --list` names them")
        for method in {want.plan.method for want in wants if name in (want.row, want.plan.method)}:
            registry.method(method).read_options(options)  # a mistake is reported at once
        picked[name] = options
    return replace(scale, picked=picked)


def _with_datasets(scale: PaperScale, text: str | None) -> PaperScale:
    from prol import registry

    if text is None:
        return scale
    names = [name.strip() for name in text.split(",")]
    for name in names:
        registry.dataset(name)  # a wrong name is reported at once
    if len(set(names)) < len(names):
        raise ValueError(f"--datasets {text} holds one twice: give each data set once")
    return scale.on(*names)


def _with_data(scale: PaperScale, words: list[str]) -> PaperScale:
    from prol import registry
    from prol.options import parse_pairs

    if _GENERATED in words:
        scale = replace(scale, timed=_GENERATED)
    for word in words:
        if word != _GENERATED and "=" not in word:
            raise ValueError(f"--data {word} lacks a path: write --data {word}=PATH")
    places = parse_pairs(word for word in words if word != _GENERATED)
    for name in places:
        registry.dataset(name)  # a wrong name is reported at once
    return replace(scale, data=places)


def _list(console: PatientConsole, scale: PaperScale) -> None:
    from prol.paper.items import ITEMS
    from prol.report.table import Table

    rows = []
    for item in ITEMS.values():
        wants = item.wants(scale)
        names = ", ".join(dict.fromkeys(want.row for want in wants))
        rows.append([item.name, item.about, names, str(len(wants) * len(scale.seeds))])
    console.print(Table.of(("item", "what it is", "rows", "runs"), rows, "llll").rich())


def _print(done: list[Reproduced], console: PatientConsole) -> None:
    for one in done:
        console.print()
        console.say(one.page)
        for line in one.missing:
            typer.echo(f"prol: {line}", err=True)
        console.say(f"Tables and figures written to {one.folder}")
