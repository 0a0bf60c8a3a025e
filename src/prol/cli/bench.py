"""`prol bench`: how fast learning and answering are on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prol.cli import arguments as a
from prol.cli import bench_steps as steps

app = typer.Typer(help="Measure speed: images a second, ways to compute, many classes, files, and the machine itself.")


@app.callback(invoke_without_command=True)
def overview(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def files(
    dataset: Annotated[str, typer.Argument(help="A name that `prol datasets` lists, or a folder of images.")],
    method: steps.OneMethod = "prol",
    backbone: a.Backbone = "builtin",
    images: Annotated[int, typer.Option(min=1, help="Most training images to take.")] = 1000,
    chunk: steps.Chunk = 10,
    workers: a.Workers = None,
    device: a.Device = "auto",
    precision: a.Precision = "auto",
    repeats: Annotated[int, typer.Option(min=1, help="Passes that are timed; their median counts.")] = 3,
    threads: a.Threads = None,
    data: a.Data = None,
    data_options: a.DataOptions = None,
    out: steps.Out = None,
) -> None:
    """From image files on: decoding alone, learning alone, and both together, to see which is the limit."""
    import os

    from prol.backbones import open_backbone
    from prol.bench.files import files as bench
    from prol.bench.files import limit
    from prol.cli.bench_record import Record, finish, open_images, read_subject

    subject, ahead = read_subject(method), (os.cpu_count() or 2) // 2 if workers is None else workers
    subject.resolved(chunk)
    settings = {"methods": [subject.name], "dataset": dataset, "images": images, "chunk": chunk, "workers": ahead}
    record = Record("files", out, device, threads, settings)
    opened_data = open_images(dataset, data, data_options or [])
    opened = open_backbone(backbone, device=device, precision=precision)
    record.opened(opened)
    rows = bench(opened_data, subject.learner(opened, chunk), chunk, images, ahead, repeats)
    record.content |= limit(rows)
    for row in rows:
        record.add(row)
    finish(record)


def peak(
    device: a.Device = "auto", repeats: steps.Repeats = 7, threads: a.Threads = None, out: steps.Out = None
) -> None:
    """What the machine can do at most: matrix products, and copying memory."""
    from prol.backbones import pick_device
    from prol.bench.peak import peak as bench
    from prol.bench.timing import Pace
    from prol.cli.bench_record import Record, finish

    record = Record("peak", out, device, threads, {})
    for row in bench(pick_device(device), Pace(repeats=repeats)):
        record.add(row)
    finish(record)


def show(file: Annotated[Path, typer.Argument(help="A JSON file that --out wrote.")], plot: steps.Plot = None) -> None:
    """Print or draw measurements again."""
    from prol.cli.bench_record import print_content, read_content

    print_content(read_content(file), plot)


for verb in (steps.speed, steps.ladder, steps.growth, files, peak, show):
    app.command()(verb)
