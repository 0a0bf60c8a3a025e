"""`prol learn`: one learner of a large image set, learnt in shards by many workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a
from prol.cli.terminal import output

if TYPE_CHECKING:
    from prol.runs.executors import Executor

_WORKERS = "Workers"


def learn(
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER|PARQUET...", help="A folder of CLASS/*.jpg; or parquet files, or a folder or hub: of them."
        ),
    ],
    method: Annotated[
        str, typer.Option(metavar="METHOD[:KEY=VALUE,...]", help="A method whose learners can be merged.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist. OUT.shards has unfinished work.")],
    backbone: a.Backbone = "auto",
    image_size: a.ImageSize = None,
    device: a.Device = "auto",
    precision: a.Precision = "auto",
    seed: Annotated[int, typer.Option(help="Draws the shards, their order, and initial values.")] = 0,
    chunk: Annotated[
        int, typer.Option(min=1, help="Images per update while the first shard tunes or chooses something.")
    ] = 10,
    shards: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Parts into which the images are divided. By default one for 10,000 images, at most 1,000.",
            rich_help_panel=_WORKERS,
        ),
    ] = None,
    on: Annotated[
        str,
        typer.Option(
            metavar="processes|ray[:ADDRESS]",
            help="Processes of this machine; or a Ray cluster: one started here, ray:auto, or ray:HOST:PORT.",
            rich_help_panel=_WORKERS,
        ),
    ] = "processes",
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Workers at a time. By default one per free processor, at most 16, or 1 with a GPU; with ray as many "
            "as there is room for.",
            rich_help_panel=_WORKERS,
        ),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(min=0, help="How often a shard whose worker died is learnt again.", rich_help_panel=_WORKERS),
    ] = 2,
    cpus: Annotated[
        float | None,
        typer.Option(
            "--cpus-per-worker", help="Processors per worker, with ray. By default 1.", rich_help_panel=_WORKERS
        ),
    ] = None,
    gpus: Annotated[
        float | None,
        typer.Option("--gpus-per-worker", help="GPUs per worker, with ray. By default 0.", rich_help_panel=_WORKERS),
    ] = None,
) -> None:
    """Learn a large image set with many workers, and save one learner.

    A shard whose worker died is learnt again, and the same command resumes what was stopped. Images that cannot be
    read are named on standard error and skipped.
    """
    from prol.cli.models import warn
    from prol.runs.plan import read_method
    from prol.verbs.sharded import Recipe, learn_in_shards

    name, options = read_method(method)
    network = a.sized(backbone, image_size)
    recipe = Recipe(name, None if network == "auto" else network, options, seed, device, precision, chunk)
    executor = make_executor(on, jobs, retries, cpus, gpus, device)
    console = output()
    with console.resumable():
        learnt = learn_in_shards(images, recipe, out, executor, shards=shards)
    for text in (text for record in learnt.records for text in record["unreadable"]):
        warn(f"skipped unreadable image {text}")
    for worker, speed in learnt.speeds().items():
        console.say(f"{worker}: {speed:,.1f} images/s")
    console.say(
        f"{learnt.learner.name} with {len(learnt.learner.classes):,} classes of {learnt.images:,} images, from "
        f"{learnt.shards:,} shards in {learnt.seconds:,.0f} s, written to {out}"
    )


def make_executor(
    on: str,
    jobs: int | None,
    retries: int,
    cpus: float | None = None,
    gpus: float | None = None,
    device: str = "auto",
) -> Executor:
    """The executor that `--on` names."""
    from prol.runs.executors import LocalProcesses

    where, _, address = on.partition(":")
    if on == "processes":
        for name, value in (("cpus", cpus), ("gpus", gpus)):
            if value is not None:
                raise ValueError(f"--{name}-per-worker is for --on ray: add that, or leave it out")
        return LocalProcesses(_usual_jobs(device) if jobs is None else jobs, retries)
    if where != "ray" or on == "ray:":
        raise ValueError(f"--on {on!r} is not known: use processes, ray or ray:ADDRESS")
    from prol.integrations.ray_executor import RayExecutor, require_ray

    require_ray()
    return RayExecutor(address or None, 1 if cpus is None else cpus, gpus or 0, None, retries, jobs)


def _usual_jobs(device: str) -> int:
    import os

    from prol.backbones import pick_device
    from prol.runs.threads import available_processors, running_elsewhere, thread_count

    if pick_device(device).type != "cpu":
        return 1
    return min(16, thread_count(available_processors(), os.cpu_count() or 1, running_elsewhere()))
