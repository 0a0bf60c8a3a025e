"""`prol show` and `prol params`: looking at a run, and counting parameters without one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def show(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    plot: Annotated[Path | None, typer.Option(help="Also draw it to this .png or .svg file.")] = None,
) -> None:
    """Print the result of a run."""
    from prol.cli.terminal import output
    from prol.report import headline, plot_run, result_tables
    from prol.runs import RunFolder

    folder, console = RunFolder(run), output()
    folder.require_run()
    config = folder.read(folder.config)
    if folder.status() == "unfinished" and plot is None:
        console.print(headline(config))
        console.print(f"The run is not finished: go on with `prol resume {run}`", soft_wrap=True)
        return
    result = folder.read(folder.result)
    console.print(result_tables(config, result, folder.read(folder.timing)))
    if plot is not None:
        plot_run(config, result, plot)
        console.print(f"Plot written to {plot}", soft_wrap=True)


def params(
    method: Annotated[str, typer.Argument(help="A name that `prol methods` lists.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the method.")
    ] = None,
    backbone: Annotated[str, typer.Option(help="As for `prol run`; no weights are loaded.")] = "auto",
    classes: Annotated[int, typer.Option(help="How many classes in all.")] = 100,
    tasks: Annotated[int, typer.Option(help="How many tasks they come in.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count what a method trains and keeps, from shapes alone."""
    from prol.cli.terminal import output
    from prol.options import parse_pairs
    from prol.runs.counting import count_parameters

    counts = count_parameters(method, parse_pairs(options or []), backbone, classes, tasks)
    if as_json:
        import json

        typer.echo(json.dumps(counts, indent=2))
    else:
        _print_counts(counts, output())


def _print_counts(counts: dict[str, Any], console: Any) -> None:
    from prol.report import footprint_table

    classes, tasks = counts["classes"], counts["tasks"]
    console.print(
        f"{counts['method']} on {counts['backbone']}: {classes} classes in {tasks} tasks. The table counts what is "
        "there at that time: the rows of classes met so far, and of those what the optimiser may still change.",
        soft_wrap=True,
    )
    moments = {"during task 1:": counts["during_first_task"]}
    if tasks > 1:
        moments[f"during task {tasks}:"] = counts["during_last_task"]
    console.print(footprint_table(moments))
    if counts["samples"] is not None:
        console.print(f"Samples come on top as they are learnt: {counts['samples']}", soft_wrap=True)
    for convention, count in counts["paper_convention"].items():
        console.print(f"By the paper's convention, {convention}: {count:,}", soft_wrap=True)
