"""`prol bench`: how fast learning and prediction are on this machine."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a
from prol.cli.bench_record import (
    PaceFlags,
    Record,
    RecordFlags,
    WorkloadFlags,
    open_images,
    print_content,
    read_content,
    read_methods,
)

if TYPE_CHECKING:
    from prol.bench.ladder import PlainMaker

app = typer.Typer(help="Measure speed: images per second, ways to compute, many classes, files, and the machine.")

Methods = Annotated[
    list[str] | None,
    typer.Argument(metavar="METHOD[:KEY=VALUE,...]", help="Methods with their options: prol:tune_norms=false."),
]
OneMethod = Annotated[str, typer.Argument(metavar="METHOD[:KEY=VALUE,...]", help="A method with its options.")]
Chunk = Annotated[int, typer.Option(min=1, help="Images per training step.")]
Plot = Annotated[Path | None, typer.Option(help="Also draw it to this .png or .svg file.")]


@app.callback(invoke_without_command=True)
def overview(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
@a.with_flags
def speed(
    *,
    methods: Methods = None,
    backbone: a.Backbone = "builtin",
    image_size: a.ImageSize = None,
    chunk: Annotated[str, typer.Option(help="Images per training step, separated by commas.")] = "1,10,32",
    batch: Annotated[str, typer.Option(help="Images per prediction, separated by commas.")] = "10,128",
    precision: a.Precision = "auto",
    peak: Annotated[
        bool, typer.Option(help="Measure the machine's matrix peak first, and report the share of it.")
    ] = True,
    load: WorkloadFlags,
    pacing: PaceFlags,
    flags: RecordFlags,
) -> None:
    """Images per second of learning and prediction, for any methods."""
    from prol.bench.throughput import speed as measure
    from prol.bench.timing import Pace, matrix_peak
    from prol.bench.workload import Workload

    chunks, batches = a.whole_numbers("--chunk", chunk, least=1), a.whole_numbers("--batch", batch, least=1)
    specs = read_methods(methods or ["prol"], chunks[0])
    record = Record("speed", specs, asdict(load), flags)
    opened = record.open_backbone(a.sized(backbone, image_size), precision)
    pace = record.pace(pacing)
    rate = None
    if peak:
        record.content["peak"] = matrix_peak(opened.device, opened.precision, Pace(repeats=pacing.repeats))
        rate = record.content["peak"]["flop_per_second"]
    record.finish(measure(specs, opened, chunks, batches, Workload(**asdict(load)), pace, rate))


@app.command()
@a.with_flags
def ladder(
    *,
    method: OneMethod = "prol",
    backbone: a.Backbone = "builtin",
    image_size: a.ImageSize = None,
    chunk: Chunk = 10,
    plot: Plot = None,
    load: WorkloadFlags,
    pacing: PaceFlags,
    flags: RecordFlags,
) -> None:
    """From plain operations to the full optimisation: the same step in several ways, in turns in one run.

    `python -m prol bench ladder` in the repository's root also times the plain step of benchmarks/plain_prol.py.
    """
    from prol.bench.ladder import ladder as measure
    from prol.bench.ladder import times_bare
    from prol.bench.workload import Workload

    [spec] = read_methods([method], chunk)
    backbone = a.sized(backbone, image_size)
    record = Record("ladder", [spec], {"backbone": backbone, "chunk": chunk, **asdict(load)}, flags, plot)
    pace, workload = record.pace(pacing), Workload(**asdict(load))

    def say(line: str) -> None:
        typer.echo(line, err=True)

    rows = measure(spec, backbone, flags.device, chunk, workload, pace, _plain_maker(), say)
    record.content["times_bare"] = times_bare(rows)
    record.finish(rows)


@app.command()
@a.with_flags
def growth(
    *,
    method: OneMethod = "prol",
    backbone: a.Backbone = "builtin",
    image_size: a.ImageSize = None,
    classes: Annotated[str, typer.Option(help="Numbers of classes, separated by commas.")] = "10,100,1000,10000,100000",
    chunk: Chunk = 10,
    batch: Annotated[int, typer.Option(min=1, help="Images per prediction.")] = 10,
    precision: a.Precision = "auto",
    plot: Plot = None,
    pacing: PaceFlags,
    flags: RecordFlags,
) -> None:
    """Time and memory of a step and a prediction against the number of classes."""
    from prol.bench.throughput import growth as measure
    from prol.bench.throughput import with_growth_ratios

    numbers = a.whole_numbers("--classes", classes, least=2)
    [spec] = read_methods([method], chunk)
    record = Record("growth", [spec], {"chunk": chunk, "batch": batch, "classes": numbers}, flags, plot)
    opened = record.open_backbone(a.sized(backbone, image_size), precision)
    record.finish(measure(spec, opened, numbers, chunk, batch, record.pace(pacing)), with_growth_ratios)


@app.command()
@a.with_flags
def files(
    *,
    dataset: Annotated[str, typer.Argument(help="A name that `prol datasets` lists, or a folder of images.")],
    method: OneMethod = "prol",
    backbone: a.Backbone = "builtin",
    image_size: a.ImageSize = None,
    images: Annotated[int, typer.Option(min=1, help="Maximum number of training images.")] = 1000,
    chunk: Chunk = 10,
    workers: a.Workers = None,
    precision: a.Precision = "auto",
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes; the result is their median.")] = 3,
    data: a.Data = None,
    data_options: a.DataOptions = None,
    flags: RecordFlags,
) -> None:
    """From image files on: decoding alone, learning alone, and both together, to see which is the limit."""
    from prol.bench.throughput import files as measure
    from prol.bench.throughput import limit

    [spec] = read_methods([method], chunk)
    threads_ahead = (os.cpu_count() or 2) // 2 if workers is None else workers
    settings = {"dataset": dataset, "images": images, "chunk": chunk, "workers": threads_ahead}
    record = Record("files", [spec], settings, flags)
    opened_data = open_images(dataset, data, data_options or [])
    learner = spec.learner(record.open_backbone(a.sized(backbone, image_size), precision), chunk)
    rows = measure(opened_data, learner, chunk, images, threads_ahead, repeats)
    record.content |= limit(rows)
    record.finish(rows)


@app.command()
@a.with_flags
def peak(
    *,
    repeats: Annotated[int, typer.Option(min=1, help="Timed blocks of steps; the result is their median.")] = 7,
    flags: RecordFlags,
) -> None:
    """The peak performance of the machine: matrix products, and copying memory."""
    from prol.bench.timing import Pace
    from prol.bench.timing import peak as measure

    record = Record("peak", [], {}, flags)
    record.finish(measure(record.device, Pace(repeats=repeats)))


@app.command()
def show(file: Annotated[Path, typer.Argument(help="A JSON file that --out wrote.")], plot: Plot = None) -> None:
    """Print or draw measurements again."""
    print_content(read_content(file), plot)


def _plain_maker() -> PlainMaker | None:
    """The plain step of the repository's `benchmarks` folder, if it can be imported."""
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec("benchmarks") is None or find_spec("benchmarks.plain_prol") is None:
        return None
    maker: PlainMaker = import_module("benchmarks.plain_prol").make_step
    return maker
