"""`prol run` and `prol resume`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from prol.runs import RunFolder


def run(
    method: Annotated[str, typer.Argument(help="A name that `prol methods` lists.")],
    dataset: Annotated[str, typer.Argument(help="A name that `prol datasets` lists.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the method, for example lr=0.05.")
    ] = None,
    backbone: Annotated[str, typer.Option(help="builtin, ARCH.TAG of timm, ARCH@FILE.safetensors or ARCH@random.")] = (
        "builtin"
    ),
    tasks: Annotated[int | None, typer.Option(help="Number of tasks; the data set's usual one by default.")] = None,
    chunk: Annotated[int, typer.Option(help="How many samples arrive together.")] = 10,
    seed: Annotated[int, typer.Option(help="Drives the order of samples, initial values and augmentation.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, float32, float64 or bf16.")] = "auto",
    protocol: Annotated[str, typer.Option(help="How the stream is ordered.")] = "disjoint",
    class_order: Annotated[str, typer.Option(help="label or shuffled.")] = "label",
    boundaries: Annotated[
        bool, typer.Option("--boundaries/--no-boundaries", help="Tell the learner when a task begins.")
    ] = True,
    announce: Annotated[
        bool, typer.Option("--announce/--no-announce", help="Tell it the task's classes then, too.")
    ] = True,
    limit_per_class: Annotated[int | None, typer.Option(help="Most images of a class, in training and test.")] = None,
    data: Annotated[str | None, typer.Option(help="Where the images are, for data that are not built in.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write; runs/METHOD-DATASET-seedN by default.")] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Chunks from one checkpoint to the next.")] = 50,
    threads: Annotated[int | None, typer.Option(help="Processor threads; as torch chooses by default.")] = None,
) -> None:
    """Stream a data set through a method, and measure what it knows after each task."""
    from prol.cli.terminal import output
    from prol.options import parse_pairs
    from prol.runs import Plan, display_for, start

    plan = Plan(
        method=method,
        dataset=dataset,
        options=parse_pairs(options or []),
        backbone=backbone,
        device=device,
        precision=precision,
        seed=seed,
        protocol=protocol,
        tasks=tasks,
        chunk=chunk,
        class_order=class_order,
        boundaries=boundaries,
        announce=announce,
        data=data,
        limit_per_class=limit_per_class,
        threads=threads,
        checkpoint_every=checkpoint_every,
    )
    console = output()
    _print_result(start(plan, out, display_for(console)), console)


def resume(run: Annotated[Path, typer.Argument(help="The folder of a run.")]) -> None:
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
    _print_result(go_on(run, display_for(console)), console)


def _print_result(folder: RunFolder, console: Console) -> None:
    from prol.report import result_tables

    files = (folder.config, folder.result, folder.timing)
    console.print(result_tables(*(folder.read(file) for file in files)))
    console.print(f"Written to {folder.path}", soft_wrap=True)
