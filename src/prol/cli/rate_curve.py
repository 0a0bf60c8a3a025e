"""`prol rate-curve`: how accuracy falls when data come faster than they can be learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prol.cli import arguments as a


def rate_curve(
    method: a.Method,
    dataset: a.DatasetName,
    options: a.MethodOptions = None,
    rates: Annotated[str, typer.Option(help="Images a second, separated by commas.")] = "10,20,50,100,200,500,1000",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; runs/rates-METHOD-DATASET-seedN by default.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Picture to draw; OUT/curve.png by default.")] = None,
    backbone: a.Backbone = "auto",
    device: a.Device = "auto",
    precision: a.Precision = "auto",
    threads: a.Threads = None,
    workers: a.Workers = None,
    data: a.Data = None,
    data_options: a.DataOptions = None,
    limit_per_class: a.LimitPerClass = None,
    protocol: a.Protocol = "disjoint",
    protocol_options: a.ProtocolOptions = None,
    tasks: a.Tasks = None,
    chunk: a.ChunkSize = 10,
    seed: a.Seed = 0,
    class_order: a.ClassOrder = "label",
    boundaries: a.Boundaries = None,
    announce: a.Announce = None,
    keep: a.Keep = 0,
    step_seconds: a.StepSeconds = None,
) -> None:
    """Run a method at several rates of arrival, and draw accuracy against rate."""
    from prol.cli.terminal import output
    from prol.evaluation import Clock
    from prol.experiments import rate_curve as experiment
    from prol.options import parse_pairs
    from prol.report.plot import check_figure_file, require_matplotlib
    from prol.report.rate_plot import plot_rates, rate_table
    from prol.runs import Plan, display_for
    from prol.runs.step_times import read_step_seconds

    speeds = _numbers(rates)
    folder = out or Path("runs") / f"rates-{method}-{dataset}-seed{seed}"
    picture = plot or folder / "curve.png"
    require_matplotlib()  # what keeps the picture from being drawn should be known before the runs
    if plot is not None:
        check_figure_file(plot)
    plan = Plan(
        method=method,
        dataset=dataset,
        options=parse_pairs(options or []),
        backbone=backbone,
        device=device,
        precision=precision,
        seed=seed,
        protocol=protocol,
        protocol_options=parse_pairs(protocol_options or []),
        tasks=tasks,
        chunk=chunk,
        class_order=class_order,
        boundaries=boundaries,
        announce=announce,
        data=data,
        dataset_options=parse_pairs(data_options or []),
        limit_per_class=limit_per_class,
        threads=threads,
        workers=workers,
    )
    clock, console = Clock(speeds[0], keep, read_step_seconds(step_seconds)), output()
    points = experiment.as_rows(experiment.rate_curve(plan, speeds, folder, display_for(console), clock))
    console.print(rate_table(points))
    plot_rates(points, f"{method} on {dataset}, seed {seed}", picture)
    console.print(f"Runs and curve.json written to {folder}, picture to {picture}", soft_wrap=True)


def _numbers(text: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers:
        raise ValueError(f"--rates {text!r} is not a list of numbers: write it as 50,100,200")
    return numbers
