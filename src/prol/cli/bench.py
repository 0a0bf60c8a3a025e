"""`prol bench`: how fast learning and prediction are on this machine, and the record of what is measured."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prol.cli import arguments as a
from prol.cli.terminal import output

if TYPE_CHECKING:
    from prol.backbones import Backbone
    from prol.bench.ladder import PlainMaker
    from prol.bench.timing import Pace
    from prol.bench.workload import MethodSpec
    from prol.data import Dataset

FAILED = 1

Row = dict[str, Any]


@dataclass(frozen=True)
class RecordFlags:
    """Where it is measured, and the file that receives it."""

    device: a.Device = "auto"
    threads: a.Threads = None
    out: Annotated[Path | None, typer.Option(help="The JSON file to write, after each row.")] = None


@dataclass(frozen=True)
class PaceFlags:
    """How often steps are made."""

    warmup: int | None = a.flag("Steps before timing; 20 on a GPU and 2 elsewhere by default.", min=0)
    repeats: int = a.flag("Timed blocks of steps; the result is their median.", default=7, min=1)
    steps: int | None = a.flag("Steps per block; as many as take half a second by default.", min=1)


@dataclass(frozen=True)
class WorkloadFlags:
    """What is learnt."""

    classes: int = a.flag("Number of classes; the last 10 belong to the current task.", default=100, min=2)
    first_task: bool = a.flag("All classes belong to the first task.", None, "--first-task", default=False)
    side: int | None = a.flag("Side of input images, in pixels; the network's input size by default.", min=1)


class Record:
    """What is measured and how, as the flags say, with the rows; written after each row, so that none is lost.

    Everything that would prevent writing or drawing is checked before anything is measured.
    """

    def __init__(
        self,
        bench: str,
        methods: Sequence[MethodSpec],
        settings: dict[str, Any],
        flags: RecordFlags,
        plot: Path | None = None,
    ) -> None:
        from prol.backbones import pick_device
        from prol.bench.machine import document
        from prol.report.plot import check_figure_file, require_matplotlib

        if flags.out is not None and not flags.out.absolute().parent.is_dir():
            raise FileNotFoundError(f"cannot write {flags.out}: the folder {flags.out.parent} does not exist")
        if plot is not None:
            require_matplotlib()
            check_figure_file(plot)
        a.set_threads(flags.threads)
        self.device, self.device_name, self.out, self.plot = pick_device(flags.device), flags.device, flags.out, plot
        named = {"methods": [method.name for method in methods]} if methods else {}
        self.content = document(bench, self.device, shlex.join(["prol", *sys.argv[1:]]), named | settings)

    def open_backbone(self, name: str, precision: str) -> Backbone:
        from prol.backbones import open_backbone

        opened = open_backbone(name, device=self.device_name, precision=precision)
        about = {"backbone": opened.name, "sha256": opened.sha256, "precision": opened.precision}
        self.content["settings"] |= about
        return opened

    def pace(self, flags: PaceFlags) -> Pace:
        from prol.bench.timing import Pace

        pace = Pace.for_device(self.device, flags.warmup, flags.repeats, flags.steps)
        self.content["settings"]["pace"] = asdict(pace)
        return pace

    def finish(self, rows: Iterable[Row], compare: Callable[[list[Row]], list[Row]] | None = None) -> None:
        """Records rows as they come, then prints them; the command fails if a row did.

        Args:
            compare: adds to all rows what relates them to each other.
        """
        from prol.report.bench import line

        for row in rows:
            self.content["rows"].append(row)
            typer.echo(line(row), err=True)
            self._write()
        if compare is not None:
            self.content["rows"] = compare(self.content["rows"])
        self._write()
        print_content(self.content, self.plot)
        if self.out is not None:
            typer.echo(f"Written to {self.out}")
        if any("error" in row for row in self.content["rows"]):
            raise typer.Exit(FAILED)

    def _write(self) -> None:
        from prol.files import write_json

        if self.out is not None:
            write_json(self.out, self.content)


def print_content(content: dict[str, Any], plot: Path | None) -> None:
    """Prints the table, and draws the figure if requested."""
    from prol.report.bench import bench_tables, plot_bench

    console = output()
    console.print(bench_tables(content))
    if plot is not None:
        try:
            plot_bench(content, plot)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{plot} cannot be drawn: the measurement {_damaged(error)}") from error
        console.say(f"Plot written to {plot}")


def read_methods(words: Sequence[str], chunk: int) -> list[MethodSpec]:
    """METHOD:KEY=VALUE,... as in `prol compare`; invalid options are refused."""
    from prol.bench.workload import MethodSpec
    from prol.runs.plan import read_method

    specs = [MethodSpec(*read_method(word)) for word in words]
    for spec in specs:
        spec.resolved(chunk)
    return specs


def open_images(word: str, data: str | None, options: list[str]) -> Dataset:
    """Opens a data set by name, or a folder of images."""
    from prol import registry
    from prol.options import bind_arguments, parse_pairs

    name, where = word, data
    if word not in registry.names("datasets") and Path(word).expanduser().is_dir():
        if data is not None:
            raise ValueError(f"{word!r} is already a folder: leave out --data")
        name, where = "folder", word
    open_dataset = registry.dataset(name)
    return open_dataset(data=where, **bind_arguments(open_dataset, parse_pairs(options), ("data",)))


def read_content(file: Path) -> dict[str, Any]:
    """Reads a file that `--out` wrote, and checks that it contains all that its tables need."""
    from prol.bench.machine import FORMAT
    from prol.report.bench import bench_tables, require_table

    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise FileNotFoundError(f"{file} {what}: give a file that `prol bench ... --out FILE` wrote")
    try:
        content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: {error}") from error
    valid = isinstance(content, dict) and content.get("format") == FORMAT and isinstance(content.get("bench"), str)
    if not valid:
        raise ValueError(
            f"{file} holds no measurements of this version of prol: "
            "give a file that `prol bench ... --out FILE` wrote, or measure again"
        )
    require_table(content["bench"])
    try:
        bench_tables(content)
    except Exception as error:  # a damaged file can fail anywhere in the tables
        raise ValueError(f"{file} {_damaged(error)}") from error
    return content


def _damaged(error: Exception) -> str:
    missing = f"no {error}" if isinstance(error, KeyError) else str(error)
    return f"is damaged or of another version of prol ({missing}): measure again with `prol bench ... --out FILE`"


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
    from prol.bench.machine import matrix_peak
    from prol.bench.throughput import speed as measure
    from prol.bench.timing import Pace
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
    from prol.bench.machine import peak as measure
    from prol.bench.timing import Pace

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
