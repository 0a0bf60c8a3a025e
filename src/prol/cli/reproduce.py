"""`prol reproduce`: the paper's tables and figures, run again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prol.cli import arguments as a
from prol.cli import executing as e

if TYPE_CHECKING:
    from rich.console import Console

    from prol.experiments.paper.item_files import Reproduced
    from prol.experiments.paper.scale import Scale

FAILED = 1
_GENERATED = "generated"


def reproduce(
    items: Annotated[list[str] | None, typer.Argument(metavar="ITEM", help="As --list names them, or all.")] = None,
    show_items: Annotated[bool, typer.Option("--list", help="List the items and their rows, and run nothing.")] = False,
    table: Annotated[
        bool, typer.Option("--table", help="Only write the tables of --out again, from its files.")
    ] = False,
    scale: Annotated[
        str, typer.Option(help="full (the paper's), builtin or smoke (minutes on a processor).")
    ] = "builtin",
    out: Annotated[
        Path | None, typer.Option(help="Folder of runs and tables; runs/reproduce-SCALE by default.")
    ] = None,
    methods: Annotated[
        list[str] | None,
        typer.Option(metavar="METHOD[:KEY=VALUE,...]", help="Only these methods or rows; may be repeated."),
    ] = None,
    datasets: Annotated[
        str | None, typer.Option(help="Data sets in place of the scale's, separated by commas.")
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="Where a data set lies; may be repeated. `generated` alone: noise for what is timed.",
        ),
    ] = None,
    seeds: Annotated[str | None, typer.Option(help="Separated by commas; the scale's own by default.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="In place of the scale's: builtin, ARCH.TAG, ARCH@FILE or ARCH@random.")
    ] = None,
    limit_per_class: a.LimitPerClass = None,
    tasks: a.Tasks = None,
    chunk: a.ChunkSize = 10,
    device: a.Device = "auto",
    precision: a.Precision = "auto",
    threads: a.Threads = None,
    workers: a.Workers = None,
    executor: e.Place = "local",
    jobs: e.Jobs = None,
    retries: e.Retries = 2,
    ray_address: e.RayAddress = None,
    cpus_per_run: e.CpusPerRun = None,
    gpus_per_run: e.GpusPerRun = None,
    memory_per_run: e.MemoryPerRun = None,
    keep_models: Annotated[
        bool, typer.Option("--keep-models", help="Keep the learners of finished runs, not their results alone.")
    ] = False,
) -> None:
    """Run the paper's tables and figures again, and set them beside what it prints.

    Finished runs are kept and stopped ones go on: the same command takes up a stopped reproduction. What is timed runs
    alone on this machine, whatever the executor, and begins anew if it was stopped.
    """
    from prol.backbones import pick_device
    from prol.cli.terminal import output
    from prol.experiments.executors import LocalProcesses, OneByOne
    from prol.experiments.paper.items import ITEMS, pick
    from prol.experiments.paper.reproduction import render
    from prol.experiments.paper.reproduction import reproduce as experiment
    from prol.experiments.paper.scale import read_scale
    from prol.report.plot import require_matplotlib
    from prol.runs import display_for

    console = output()
    chosen = read_scale(scale)
    if show_items:
        _list(console, chosen)
        return
    if not items:
        raise ValueError(f"give an item: {', '.join(ITEMS)} or all")
    wanted, folder = pick(items), out or Path("runs") / f"reproduce-{scale}"
    require_matplotlib()  # what keeps figures from being drawn should be known before the runs
    if table:
        _print(render(wanted, folder), console)
        return
    chosen = _with_data(_with_datasets(_with_methods(chosen, methods or []), datasets), data or [])
    given: dict[str, Any] = {"limit_per_class": limit_per_class, "most_per_class": limit_per_class, "tasks": tasks}
    given |= {"backbone": backbone, "tiny_backbone": backbone, "seeds": None if seeds is None else _numbers(seeds)}
    chosen = replace(chosen, **{name: value for name, value in given.items() if value is not None})
    chosen = replace(chosen, chunk=chunk, device=device, precision=precision, threads=threads, workers=workers)
    display = display_for(console)

    def say(line: str) -> None:
        console.print(line, soft_wrap=True)

    # On a GPU torch compiles steps and keeps a limited number of them: each run begins anew in a process of its own.
    alone = OneByOne(display) if pick_device(device).type == "cpu" else LocalProcesses(1)
    place = e.open_executor(executor, display, jobs, retries, ray_address, cpus_per_run, gpus_per_run, memory_per_run)
    try:
        done = experiment(
            wanted, chosen, folder, alone if isinstance(place, OneByOne) else place, alone, say, keep_models
        )
    except KeyboardInterrupt:
        console.print("stopped: the same command goes on from here", soft_wrap=True)
        raise
    _print(done, console)
    if any(one.failed or not one.finished_runs for one in done):
        raise typer.Exit(FAILED)


def _with_methods(scale: Scale, words: list[str]) -> Scale:
    """Only some methods or rows, with options of their own."""
    from prol import registry
    from prol.experiments.method_words import read_method
    from prol.experiments.paper.items import ITEMS

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
            registry.method(method).read_options(options)  # a mistake is told at once
        picked[name] = options
    return replace(scale, picked=picked)


def _with_datasets(scale: Scale, text: str | None) -> Scale:
    from prol import registry

    if text is None:
        return scale
    names = [name.strip() for name in text.split(",")]
    for name in names:
        registry.dataset(name)  # a name that is wrong is told at once
    if len(set(names)) < len(names):
        raise ValueError(f"--datasets {text} holds one twice: give each data set once")
    return scale.on(*names)


def _with_data(scale: Scale, words: list[str]) -> Scale:
    from prol import registry
    from prol.options import parse_pairs

    if _GENERATED in words:
        scale = replace(scale, timed=_GENERATED)
    for word in words:
        if word != _GENERATED and "=" not in word:
            raise ValueError(f"--data {word} does not say where it lies: write --data {word}=PATH")
    places = parse_pairs(word for word in words if word != _GENERATED)
    for name in places:
        registry.dataset(name)  # a name that is wrong is told at once
    return replace(scale, data=places)


def _numbers(text: str) -> tuple[int, ...]:
    from prol.cli.bench_record import whole_numbers

    numbers = whole_numbers("--seeds", text, least=0)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"--seeds {text} holds one twice: give each seed once")
    return tuple(numbers)


def _list(console: Console, scale: Scale) -> None:
    from rich.box import SIMPLE
    from rich.table import Table

    from prol.experiments.paper.items import ITEMS

    table = Table("item", "what it is", "rows", "runs", box=SIMPLE)
    for item in ITEMS.values():
        wants = item.wants(scale)
        rows = ", ".join(dict.fromkeys(want.row for want in wants))
        table.add_row(item.name, item.about, rows, str(len(wants) * len(scale.seeds)))
    console.print(table)


def _print(done: list[Reproduced], console: Console) -> None:
    for one in done:
        console.print()
        console.print(one.page, soft_wrap=True)
        for line in one.missing:
            typer.echo(f"prol: {line}", err=True)
        console.print(f"Tables and figures written to {one.folder}", soft_wrap=True)
