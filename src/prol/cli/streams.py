"""`prol streams`: the order in which a data set would come, before anything is learnt from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a
from prol.cli.inspect import first_line, print_list
from prol.cli.terminal import output

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from prol.data import Dataset
    from prol.data.streams import Stream


@a.with_flags
def streams(
    flags: a.StreamFlags,
    dataset: Annotated[
        str | None, typer.Argument(help="A name that `prol datasets` lists; without it, the protocols are listed.")
    ] = None,
    seed: Annotated[
        int, typer.Option(help="The seed of the order of samples and classes.", rich_help_panel="The stream")
    ] = 0,
    plot: Annotated[Path | None, typer.Option(help="Also draw which classes come when to this .png or .svg.")] = None,
) -> None:
    """Show the order in which a data set would come, or list the protocols."""
    from prol.options import own_arguments
    from prol.report.plot import check_figure_file
    from prol.report.stream_plot import plot_stream
    from prol.runs import Plan
    from prol.runs.setup import class_times, look_up, open_data

    console = output()
    if dataset is None:
        if plot is not None:
            raise ValueError("--plot draws the stream of a data set: name one, for example `prol streams glyphs`")
        _list_protocols()
        return
    if plot is not None:
        check_figure_file(plot)
    plan = Plan("ncm", dataset, seed=seed, **flags.given())  # any method: none is run
    named = look_up(plan)
    opened = open_data(plan, named)
    boundaries = True if plan.boundaries is None and plan.announce else plan.boundaries
    stream = named.order(
        opened.train.labels,
        tasks=plan.tasks or min(opened.tasks, len(opened.class_names)),
        chunk=plan.chunk,
        seed=seed,
        class_order=plan.class_order,
        boundaries=own_arguments(named.order)["boundaries"] if boundaries is None else boundaries,
        announce=plan.announce,
        **named.protocol_options,
    )
    for note in opened.notes:
        console.say(note)
    title = f"{plan.protocol} stream of {dataset}, seed {seed}"
    console.print(_task_table(stream, opened, title))
    given, announced = ("yes" if one else "no" for one in (stream.boundaries_told, stream.classes_announced))
    console.say(f"Given to the learner: task boundaries: {given}, classes of next task: {announced}.")
    if plot is not None:
        plot_stream(*class_times(opened, stream), title, plot)
        console.say(f"Plot written to {plot}")


def _list_protocols() -> None:
    from prol import registry
    from prol.data.streams import SHARED_ARGUMENTS
    from prol.options import describe_options, own_arguments, spell

    found, problems = registry.load_all("protocols")
    rows = []
    for name, order in found.items():
        allowed, defaults = describe_options(order), own_arguments(order)
        options = own_arguments(order, SHARED_ARGUMENTS)
        own = [f"{option}={spell(defaults[option])}: {allowed[option]}" for option in options]
        given = "boundaries, classes" if defaults.get("boundaries") else "nothing"
        rows.append([name, first_line(order), given, "\n".join(own)])
    print_list(("protocol", "what it is", "given by default", "its own options (-P)"), rows, problems)


def _task_table(stream: Stream, dataset: Dataset, title: str) -> RichTable:
    from prol.data.streams import summarise_tasks
    from prol.report.table import Table

    rows = []
    for task, summary in enumerate(summarise_tasks(stream, dataset.train.labels)):
        counts = (task + 1, summary.samples, summary.chunks, summary.own_classes, summary.classes_present)
        rows.append([*map(str, counts), f"{100 * summary.foreign_share:.1f}"])
    titles = ("task", "samples", "chunks", "own classes", "classes present", "of other tasks' classes, %")
    return Table.of(titles, rows, "r" * len(titles), title).rich()
