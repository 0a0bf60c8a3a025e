"""`prol bench speed`, `ladder` and `growth`: training steps and predictions on made-up images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a

if TYPE_CHECKING:
    from prol.bench.ladder import PlainMaker

Methods = Annotated[
    list[str] | None,
    typer.Argument(metavar="METHOD[:KEY=VALUE,...]", help="Methods with their options: prol:tune_norms=false."),
]
OneMethod = Annotated[str, typer.Argument(metavar="METHOD[:KEY=VALUE,...]", help="A method with its options.")]
Chunk = Annotated[int, typer.Option(min=1, help="Images of a training step.")]
Classes = Annotated[int, typer.Option(min=2, help="Classes known; the last 10 are the current task's.")]
FirstTask = Annotated[bool, typer.Option("--first-task", help="All classes are of the first task.")]
Side = Annotated[
    int | None, typer.Option(min=1, help="Side of incoming images, in pixels; the network's own by default.")
]
Warmup = Annotated[int | None, typer.Option(min=0, help="Steps before timing; 20 on a GPU and 2 elsewhere by default.")]
Repeats = Annotated[int, typer.Option(min=1, help="Blocks of steps that are timed; their median counts.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of a block; as many as take half a second by default.")]
Out = Annotated[Path | None, typer.Option(help="JSON file to write, after each row.")]
Plot = Annotated[Path | None, typer.Option(help="Also draw it to this .png or .svg file.")]


def speed(
    methods: Methods = None,
    backbone: a.Backbone = "builtin",
    chunk: Annotated[str, typer.Option(help="Images of a training step, separated by commas.")] = "1,10,32",
    batch: Annotated[str, typer.Option(help="Images answered together, separated by commas.")] = "10,128",
    device: a.Device = "auto",
    precision: a.Precision = "auto",
    classes: Classes = 100,
    first_task: FirstTask = False,
    side: Side = None,
    peak: Annotated[
        bool, typer.Option(help="Measure the machine's matrix peak first, and say what share of it.")
    ] = True,
    warmup: Warmup = None,
    repeats: Repeats = 7,
    steps: Steps = None,
    threads: a.Threads = None,
    out: Out = None,
) -> None:
    """Images a second, learnt and answered, for any methods."""
    from prol.backbones import open_backbone
    from prol.bench.peak import matrix_peak
    from prol.bench.speed import speed as bench
    from prol.bench.subject import Load
    from prol.bench.timing import Pace
    from prol.cli.bench_record import Record, finish, read_subject, whole_numbers

    subjects, load = [read_subject(word) for word in methods or ["prol"]], Load(classes, first_task, side)
    chunks, batches = whole_numbers("--chunk", chunk), whole_numbers("--batch", batch)
    settings = {"methods": [s.name for s in subjects], "classes": classes, "first_task": first_task, "side": side}
    for subject in subjects:
        subject.resolved(chunks[0])
    record = Record("speed", out, device, threads, settings)
    opened = open_backbone(backbone, device=device, precision=precision)
    record.opened(opened)
    pace = record.paced(Pace.for_device(opened.device, warmup, repeats, steps))
    if peak:
        record.content["peak"] = matrix_peak(opened.device, opened.precision, Pace(repeats=repeats))
    rate = record.content["peak"]["flop_per_second"] if peak else None
    for row in bench(subjects, opened, chunks, batches, load, pace, rate):
        record.add(row)
    finish(record)


def ladder(
    method: OneMethod = "prol",
    backbone: a.Backbone = "builtin",
    chunk: Chunk = 10,
    device: a.Device = "auto",
    classes: Classes = 100,
    first_task: FirstTask = False,
    side: Side = None,
    warmup: Warmup = None,
    repeats: Repeats = 7,
    steps: Steps = None,
    threads: a.Threads = None,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """From plain operations to the full path: the same step in several ways, in turns in one run.

    `python -m prol bench ladder` in the repository's root also times the plain step of benchmarks/plain_prol.py.
    """
    from prol.backbones import pick_device
    from prol.bench.ladder import ladder as bench
    from prol.bench.ladder import times_bare
    from prol.bench.subject import Load
    from prol.bench.timing import Pace
    from prol.cli.bench_record import Record, finish, read_subject

    subject, load, place = read_subject(method), Load(classes, first_task, side), pick_device(device)
    subject.resolved(chunk)
    settings = {"methods": [subject.name], "backbone": backbone, "chunk": chunk, "classes": classes}
    record = Record("ladder", out, device, threads, settings | {"first_task": first_task, "side": side}, plot)
    pace = record.paced(Pace.for_device(place, warmup, repeats, steps))

    def say(line: str) -> None:
        typer.echo(line, err=True)

    for row in bench(subject, backbone, device, chunk, load, pace, _plain_maker(), say):
        record.add(row)
    record.content["times_bare"] = times_bare(record.content["rows"])
    finish(record, plot)


def growth(
    method: OneMethod = "prol",
    backbone: a.Backbone = "builtin",
    classes: Annotated[str, typer.Option(help="Numbers of classes, separated by commas.")] = "10,100,1000,10000,100000",
    chunk: Chunk = 10,
    batch: Annotated[int, typer.Option(min=1, help="Images answered together.")] = 10,
    device: a.Device = "auto",
    precision: a.Precision = "auto",
    warmup: Warmup = None,
    repeats: Repeats = 7,
    steps: Steps = None,
    threads: a.Threads = None,
    out: Out = None,
    plot: Plot = None,
) -> None:
    """Time and memory of a step and a prediction against the number of classes known."""
    from prol.backbones import open_backbone
    from prol.bench.growth import growth as bench
    from prol.bench.growth import with_ratios
    from prol.bench.timing import Pace
    from prol.cli.bench_record import Record, finish, read_subject, whole_numbers

    subject, numbers = read_subject(method), whole_numbers("--classes", classes, least=2)
    subject.resolved(chunk)
    settings = {"methods": [subject.name], "chunk": chunk, "batch": batch, "classes": numbers}
    record = Record("growth", out, device, threads, settings, plot)
    opened = open_backbone(backbone, device=device, precision=precision)
    record.opened(opened)
    pace = record.paced(Pace.for_device(opened.device, warmup, repeats, steps))
    for row in bench(subject, opened, numbers, chunk, batch, pace):
        record.add(row)
    record.content["rows"] = with_ratios(record.content["rows"])
    finish(record, plot)


def _plain_maker() -> PlainMaker | None:
    """The plain step of the repository's `benchmarks` folder, where Python can see it."""
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec("benchmarks") is None or find_spec("benchmarks.plain_prol") is None:
        return None
    maker: PlainMaker = import_module("benchmarks.plain_prol").make_step
    return maker
