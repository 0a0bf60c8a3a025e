"""`prol compare`: several methods on the same stream, and one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a
from prol.cli.terminal import PatientConsole, output

if TYPE_CHECKING:
    from prol.runs.comparison import Comparison

FAILED = 1


@a.with_flags
def compare(
    flags: a.PlanFlags,
    execution: a.ExecutorFlags,
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="METHOD[:KEY=VALUE,...]",
            help="Names that `prol methods` lists, with options after a colon: prol:lr=0.05,length=3.",
        ),
    ] = None,
    dataset: Annotated[str | None, typer.Argument(metavar="DATASET", help="A name that `prol datasets` lists.")] = None,
    seeds: Annotated[
        str, typer.Option(help="Each method runs once with each seed; separate seeds by commas.")
    ] = "0,1,2",
    out: Annotated[Path | None, typer.Option(help="The folder of the runs. By default runs/compare-DATASET.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw accuracy after each task to this .png or .svg.")] = None,
    plot_memory: Annotated[
        Path | None, typer.Option(help="Also draw final accuracy against stored bytes to this .png or .svg.")
    ] = None,
    table: Annotated[bool, typer.Option("--table", help="Only print the table of the runs in --out again.")] = False,
) -> None:
    """Run methods on the same stream with the same seeds, and print one table, best first.

    Finished runs are reused and unfinished ones resumed: the same command resumes an interrupted comparison.
    """
    from prol.report.plot import check_figure_file, require_matplotlib
    from prol.runs import comparison, display_for
    from prol.runs.plan import read_method

    console = output()
    for file in filter(None, (plot, plot_memory)):
        require_matplotlib()  # before the runs, not after them
        check_figure_file(file)
    if table:
        if methods or dataset or out is None:
            raise ValueError("--table prints the runs of a folder again: give --out DIR and nothing to run")
        _print(comparison.read_comparison(out), plot, plot_memory, console)
        return
    if not methods or dataset is None:
        raise ValueError("give at least one method and, last, the data set: prol compare ncm head_only digits")
    folder = out or Path("runs") / f"compare-{dataset}"
    plans = [
        flags.plan(method, dataset, options, backbone=_backbone_of(method, flags.given().get("backbone", "auto")))
        for method, options in map(read_method, methods)
    ]
    executor = execution.open(display_for(console))
    with console.resumable():
        compared = comparison.compare(plans, a.read_seeds(seeds), folder, executor=executor, say=console.say)
    _print(compared, plot, plot_memory, console)
    console.say(f"Runs, comparison.json and comparison.md written to {folder}")
    if compared.failures:
        raise typer.Exit(FAILED)


def _backbone_of(method: str, given: str) -> str:
    """Methods that train a network from scratch use their own, next to others on the given weights."""
    from prol import registry

    known = registry.is_method(method) and registry.method(method).from_scratch
    return "auto" if known and given.partition("@")[0] != registry.method(method).default_backbone else given


def _print(comparison: Comparison, history: Path | None, memory: Path | None, console: PatientConsole) -> None:
    from prol.report.comparison import comparison_table, notes
    from prol.report.comparison_plot import memory_plot, plot_comparison

    for line in comparison.failure_lines():
        typer.echo(f"prol: {line}", err=True)
    if not comparison.rows:
        return
    console.widen()
    console.say(comparison.headline)
    console.print(comparison_table(comparison.rows))
    for note in notes(comparison.rows):
        console.say(note)
    title = comparison.headline.partition(", backbone")[0]
    if history is not None:
        plot_comparison(comparison.rows, title, history)
    if memory is not None:
        memory_plot(comparison.rows, title).write(memory)
    for file in filter(None, (history, memory)):
        console.say(f"Picture written to {file}")
