"""`prol compare`: many methods on the same stream, and one table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a
from prol.cli import executing as e
from prol.experiments.method_words import read_method

if TYPE_CHECKING:
    from rich.console import Console

    from prol.experiments.comparison import Comparison

FAILED = 1
_WIDE_ENOUGH = 200


@dataclass(frozen=True)
class Pictures:
    """Where pictures are wanted."""

    history: Path | None
    memory: Path | None

    def files(self) -> list[Path]:
        return [file for file in (self.history, self.memory) if file is not None]


def compare(
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD[:KEY=VALUE,...]",
            help="Names that `prol methods` lists, with options behind a colon: prol:lr=0.05,length=3.",
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Argument(metavar="DATASET", help="A name that `prol datasets` lists.")] = None,
    seeds: Annotated[str, typer.Option(help="Each method runs once with each, separated by commas.")] = "0,1,2",
    out: Annotated[Path | None, typer.Option(help="Folder of the runs; runs/compare-DATASET by default.")] = None,
    executor: e.Place = "local",
    jobs: e.Jobs = None,
    retries: e.Retries = 2,
    ray_address: e.RayAddress = None,
    cpus_per_run: e.CpusPerRun = None,
    gpus_per_run: e.GpusPerRun = None,
    memory_per_run: e.MemoryPerRun = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw accuracy after each task to this .png or .svg.")] = None,
    plot_memory: Annotated[
        Path | None, typer.Option(help="Also draw final accuracy against bytes kept to this .png or .svg.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Only print the table of the runs in --out again.")] = False,
    backbone: a.Backbone = "auto",
    device: a.Device = "auto",
    precision: a.Precision = "auto",
    threads: a.Threads = None,
    workers: a.Workers = None,
    checkpoint_every: Annotated[int, typer.Option(help="Chunks from one checkpoint to the next.")] = 50,
    data: a.Data = None,
    data_options: a.DataOptions = None,
    development: a.Development = False,
    limit_per_class: a.LimitPerClass = None,
    protocol: a.Protocol = "disjoint",
    protocol_options: a.ProtocolOptions = None,
    tasks: a.Tasks = None,
    chunk: a.ChunkSize = 10,
    class_order: a.ClassOrder = "label",
    boundaries: a.Boundaries = None,
    announce: a.Announce = None,
    points: Annotated[int, typer.Option(help="Test all classes so far at so many points of the stream (A_AUC).")] = 0,
) -> None:
    """Run methods on the same stream with the same seeds, and print one table, best first.

    Runs that are there already are kept, stopped ones go on: the same command takes up a stopped comparison.
    """
    from prol.cli.terminal import output
    from prol.evaluation import Measures
    from prol.experiments.comparison import compare as experiment
    from prol.experiments.comparison import read_comparison
    from prol.options import parse_pairs
    from prol.report.plot import check_figure_file, require_matplotlib
    from prol.runs import Plan, display_for

    console = output()
    pictures = Pictures(plot, plot_memory)
    for file in pictures.files():
        require_matplotlib()  # what keeps the picture from being drawn should be known before the runs
        check_figure_file(file)
    if table:
        if methods or dataset or out is None:
            raise ValueError("--table prints the runs of a folder again: give --out DIR and nothing to run")
        _print(read_comparison(out), pictures, console)
        return
    if not methods or dataset is None:
        raise ValueError("give at least one method and, last, the data set: prol compare ncm head_only digits")
    folder = out or Path("runs") / f"compare-{dataset}"
    plans = [
        Plan(
            method=method,
            dataset=dataset,
            options=options,
            backbone=_backbone_of(method, backbone),
            device=device,
            precision=precision,
            protocol=protocol,
            protocol_options=parse_pairs(protocol_options or []),
            tasks=tasks,
            chunk=chunk,
            class_order=class_order,
            boundaries=boundaries,
            announce=announce,
            data=data,
            dataset_options=parse_pairs(data_options or []),
            development=development,
            limit_per_class=limit_per_class,
            measures=Measures(points),
            threads=threads,
            workers=workers,
            checkpoint_every=checkpoint_every,
        )
        for method, options in map(read_method, methods)
    ]
    place = e.open_executor(
        executor, display_for(console), jobs, retries, ray_address, cpus_per_run, gpus_per_run, memory_per_run
    )
    try:
        comparison = experiment(
            plans,
            read_seeds(seeds),
            folder,
            executor=place,
            say=lambda line: console.print(line, soft_wrap=True),
        )
    except KeyboardInterrupt:
        console.print("stopped: the same command goes on from here", soft_wrap=True)
        raise
    _print(comparison, pictures, console)
    console.print(f"Runs, comparison.json and comparison.md written to {folder}", soft_wrap=True)
    if comparison.failures:
        raise typer.Exit(FAILED)


def read_seeds(text: str) -> list[int]:
    """Seeds as a command line gives them."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ValueError(f"--seeds {text!r} is not a list of whole numbers: write it as 0,1,2")
    return [int(part) for part in parts]


def _backbone_of(method: str, asked: str) -> str:
    """Methods that train a network from scratch stand on their own, beside others on the weights asked for."""
    from prol import registry

    known = method in registry.names("methods") and registry.method(method).from_scratch
    return "auto" if known and asked.partition("@")[0] != registry.method(method).default_backbone else asked


def _print(comparison: Comparison, pictures: Pictures, console: Console) -> None:
    from prol.report.comparison_plot import memory_plot, plot_comparison
    from prol.report.comparison_table import comparison_table, notes

    for line in comparison.failure_lines():
        typer.echo(f"prol: {line}", err=True)
    if not comparison.rows:
        return
    if not console.is_terminal:
        console.width = max(
            console.width, _WIDE_ENOUGH
        )  # in a file a line may be long, and a folded table helps nobody
    console.print(comparison.headline, soft_wrap=True)
    console.print(comparison_table(comparison.rows))
    for note in notes(comparison.rows):
        console.print(note, soft_wrap=True)
    title = comparison.headline.partition(", backbone")[0]
    if pictures.history is not None:
        plot_comparison(comparison.rows, title, pictures.history)
    if pictures.memory is not None:
        memory_plot(comparison.rows, title).write(pictures.memory)
    for file in pictures.files():
        console.print(f"Picture written to {file}", soft_wrap=True)
