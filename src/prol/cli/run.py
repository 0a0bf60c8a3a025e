"""`prol run` and `prol resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a

if TYPE_CHECKING:
    from rich.console import Console

    from prol.integrations.trackers import Tracker
    from prol.runs import RunFolder

_MEASURES = "What is measured"


def run(
    method: a.Method,
    dataset: a.DatasetName,
    options: a.MethodOptions = None,
    backbone: a.Backbone = "auto",
    device: a.Device = "auto",
    precision: a.Precision = "auto",
    out: Annotated[Path | None, typer.Option(help="Folder to write; runs/METHOD-DATASET-seedN by default.")] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Chunks from one checkpoint to the next.")] = 50,
    checkpoint_share: Annotated[
        float, typer.Option(help="The most of the time that checkpoints within tasks may take; until then they wait.")
    ] = 0.1,
    threads: a.Threads = None,
    workers: a.Workers = None,
    data: a.Data = None,
    data_options: a.DataOptions = None,
    development: a.Development = False,
    limit_per_class: a.LimitPerClass = None,
    protocol: a.Protocol = "disjoint",
    protocol_options: a.ProtocolOptions = None,
    tasks: a.Tasks = None,
    chunk: a.ChunkSize = 10,
    seed: a.Seed = 0,
    class_order: a.ClassOrder = "label",
    boundaries: a.Boundaries = None,
    announce: a.Announce = None,
    points: Annotated[
        int,
        typer.Option(
            help="Test all classes so far at so many points of the stream (A_AUC).", rich_help_panel=_MEASURES
        ),
    ] = 0,
    shots: Annotated[
        int | None,
        typer.Option(
            help="Test each task after its first 0 to so many chunks (learning-curve area).", rich_help_panel=_MEASURES
        ),
    ] = None,
    prequential: Annotated[
        bool, typer.Option("--prequential", help="Predict each chunk before learning it.", rich_help_panel=_MEASURES)
    ] = False,
    inference_time: Annotated[
        bool,
        typer.Option(
            "--inference-time",
            help="Compute every test image anew each time, and report images/s of testing.",
            rich_help_panel=_MEASURES,
        ),
    ] = False,
    rate: a.Rate = None,
    keep: a.Keep = 0,
    step_seconds: a.StepSeconds = None,
    track: a.Track = None,
    track_every: a.TrackEvery = 10,
) -> None:
    """Stream a data set through a method, and measure what it knows after each task."""
    from prol.cli.terminal import output
    from prol.evaluation import Clock, Measures
    from prol.options import parse_pairs
    from prol.runs import Plan, display_for, start
    from prol.runs.step_times import read_step_seconds

    if rate is None and (keep or step_seconds is not None):
        raise ValueError("--keep and --step-seconds are for data that do not wait: add --rate IMAGES_A_SECOND")
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
        development=development,
        limit_per_class=limit_per_class,
        measures=Measures(points, shots, prequential, not inference_time),
        clock=None if rate is None else Clock(rate, keep, read_step_seconds(step_seconds)),
        threads=threads,
        workers=workers,
        checkpoint_every=checkpoint_every,
        checkpoint_share=checkpoint_share,
    )
    console, trackers = output(), _trackers(track, track_every)
    _print_result(start(plan, out, display_for(console), trackers), console)


def resume(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    track: a.Track = None,
    track_every: a.TrackEvery = 10,
) -> None:
    """Go on with a run that was stopped, from its last checkpoint."""
    from prol.cli.terminal import output
    from prol.runs import RunFolder, display_for
    from prol.runs import resume as go_on

    console = output()
    folder = RunFolder(run)
    folder.require_run()
    if folder.status() == "finished":
        console.print(f"{run} has already finished: see it with `prol show {run}`", soft_wrap=True)
        return
    _print_result(go_on(run, display_for(console), _trackers(track, track_every)), console)


def _trackers(texts: list[str] | None, every: int) -> list[Tracker]:
    if not texts:
        return []
    from prol.integrations.trackers import make_trackers

    return make_trackers(texts, every)


def _print_result(folder: RunFolder, console: Console) -> None:
    from prol.report import result_tables

    files = (folder.config, folder.result, folder.timing)
    console.print(result_tables(*(folder.read(file) for file in files)))
    console.print(f"Written to {folder.path}", soft_wrap=True)
