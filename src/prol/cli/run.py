"""`prol run`, `prol resume` and `prol rate-curve`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a
from prol.cli.terminal import PatientConsole, output

if TYPE_CHECKING:
    from prol.runs import RunFolder

_MEASURES = "What is measured"
Seed = Annotated[
    int,
    typer.Option(help="The seed of the sample order, initial values and augmentation.", rich_help_panel="The stream"),
]


@a.with_flags
def run(
    method: a.Method,
    dataset: a.DatasetName,
    flags: a.PlanFlags,
    clock: a.ClockFlags,
    tracking: a.TrackFlags,
    options: a.MethodOptions = None,
    out: Annotated[Path | None, typer.Option(help="The folder to write. By default runs/METHOD-DATASET-seedN.")] = None,
    seed: Seed = 0,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Images that arrive per second. By default data wait.", rich_help_panel="Data that do not wait"
        ),
    ] = None,
    shots: Annotated[
        int | None,
        typer.Option(
            help="Test each task after its first 0 to this many chunks (learning-curve area).",
            rich_help_panel=_MEASURES,
        ),
    ] = None,
    prequential: Annotated[
        bool, typer.Option("--prequential", help="Predict each chunk before learning it.", rich_help_panel=_MEASURES)
    ] = False,
    no_feature_cache: Annotated[
        bool,
        typer.Option(
            "--no-feature-cache",
            help="Compute the features of every test image each time, and report images/s of testing.",
            rich_help_panel=_MEASURES,
        ),
    ] = False,
    inference_time: Annotated[bool, typer.Option("--inference-time", hidden=True)] = False,
) -> None:
    """Stream a data set through a method, and measure what it knows after each task."""
    from prol.evaluation import Measures
    from prol.options import parse_pairs
    from prol.runs import display_for, start

    if rate is None and (clock.waiting or clock.step_seconds is not None):
        raise ValueError("--queue-size and --step-seconds are for data that do not wait: add --rate IMAGES_PER_SECOND")
    plan = flags.plan(
        method,
        dataset,
        parse_pairs(options or []),
        seed=seed,
        measures=Measures(flags.points or 0, shots, prequential, not (no_feature_cache or inference_time)),
        clock=None if rate is None else clock.clock(rate),
    )
    console = output()
    _print_result(start(plan, out, display_for(console), tracking.trackers()), console)


@a.with_flags
def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    tracking: a.TrackFlags,
    backbone: a.Weights = None,
) -> None:
    """Resume an unfinished run from its last checkpoint."""
    from prol.runs import RunFolder, display_for
    from prol.runs import resume as resume_run

    console = output()
    folder = RunFolder(run)
    folder.require_run()
    if folder.status() == "finished":
        console.say(f"{run} has already finished: see it with `prol show {run}`")
        return
    _print_result(resume_run(run, display_for(console), tracking.trackers(), backbone=backbone), console)


@a.with_flags
def rate_curve(
    method: a.Method,
    dataset: a.DatasetName,
    flags: a.PlanFlags,
    clock: a.ClockFlags,
    options: a.MethodOptions = None,
    rates: Annotated[
        str, typer.Option(help="Arrival rates in images per second, separated by commas.")
    ] = "10,20,50,100,200,500,1000",
    out: Annotated[
        Path | None, typer.Option(help="The folder of the runs. By default runs/rates-METHOD-DATASET-seedN.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="The picture to draw. By default OUT/curve.png.")] = None,
    seed: Seed = 0,
) -> None:
    """Run a method at several arrival rates, and draw accuracy against rate."""
    from prol.method_files import label
    from prol.options import parse_pairs
    from prol.report.plot import check_figure_file, require_matplotlib
    from prol.report.run import plot_rates, rate_table
    from prol.runs import display_for
    from prol.runs.rate_curve import rate_curve as measure

    speeds = _numbers(rates)
    folder = out or Path("runs") / f"rates-{label(method)}-{dataset}-seed{seed}"
    picture = plot or folder / "curve.png"
    require_matplotlib()  # before the runs, not after them
    if plot is not None:
        check_figure_file(plot)
    plan = flags.plan(method, dataset, parse_pairs(options or []), seed=seed)
    console = output()
    points = [asdict(one) for one in measure(plan, speeds, folder, display_for(console), clock.clock(speeds[0]))]
    console.print(rate_table(points))
    plot_rates(points, f"{method} on {dataset}, seed {seed}", picture)
    console.say(f"Runs and curve.json written to {folder}, picture to {picture}")


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers:
        raise ValueError(f"--rates {text!r} is not a list of numbers: write it as 50,100,200")
    return numbers


def _print_result(folder: RunFolder, console: PatientConsole) -> None:
    from prol.report import result_tables

    files = (folder.config, folder.result, folder.timing)
    console.print(result_tables(*(folder.read(file) for file in files)))
    console.say(f"Written to {folder.path}")
