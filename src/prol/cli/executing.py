"""Where runs are carried out: flags that verbs with many runs share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from prol.experiments.executors import Executor
    from prol.runs import Display

_PLACE = "Where runs are carried out"

Place = Annotated[
    str, typer.Option("--executor", help="local: on this machine; ray: on a Ray cluster.", rich_help_panel=_PLACE)
]
Jobs = Annotated[
    int | None,
    typer.Option(
        help="Runs at work at the same time, each a process; 1 by default, with ray as many as there is room for.",
        rich_help_panel=_PLACE,
    ),
]
Retries = Annotated[
    int, typer.Option(help="How often a run whose process died is taken up again.", rich_help_panel=_PLACE)
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        help="Of a Ray cluster, auto for the one of this machine; without it one is begun here.",
        rich_help_panel=_PLACE,
    ),
]
CpusPerRun = Annotated[float | None, typer.Option(help="With ray; 1 by default.", rich_help_panel=_PLACE)]
GpusPerRun = Annotated[
    float | None, typer.Option(help="With ray; 0 by default, 0.25 lets four runs share one.", rich_help_panel=_PLACE)
]
MemoryPerRun = Annotated[
    float | None, typer.Option(help="With ray: gigabytes set aside for a run.", rich_help_panel=_PLACE)
]


def open_executor(
    place: str,
    display: Display,
    jobs: int | None,
    retries: int,
    address: str | None,
    cpus: float | None,
    gpus: float | None,
    memory: float | None,
) -> Executor:
    """The executor that the flags name."""
    from prol.experiments.executors import LocalProcesses, OneByOne

    if place not in ("local", "ray"):
        raise ValueError(f"executor {place!r} is not known: use local or ray")
    if place == "ray":
        from prol.integrations.ray_executor import RayExecutor, require_ray

        require_ray()
        return RayExecutor(address, 1 if cpus is None else cpus, gpus or 0, memory, retries, jobs)
    for flag, value in {
        "--ray-address": address,
        "--cpus-per-run": cpus,
        "--gpus-per-run": gpus,
        "--memory-per-run": memory,
    }.items():
        if value is not None:
            raise ValueError(f"{flag} is for --executor ray: add that, or leave it out")
    processes = LocalProcesses(1 if jobs is None else jobs, retries)
    return OneByOne(display) if processes.jobs == 1 else processes
