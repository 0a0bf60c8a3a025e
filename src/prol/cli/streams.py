"""`prol streams`: the order in which a data set would come, before anything is learnt from it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prol.cli import arguments as a

if TYPE_CHECKING:
    from rich.table import Table

    from prol.data import Dataset
    from prol.data.streams import Stream

_MOST_BINS = 100


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
    from prol.cli.terminal import output
    from prol.options import own_arguments
    from prol.report.plot import check_figure_file
    from prol.runs import Plan
    from prol.runs.setup import look_up, open_data

    console = output()
    if dataset is None:
        if plot is not None:
            raise ValueError("--plot draws the stream of a data set: name one, for example `prol streams glyphs`")
        table, problems = _protocol_table()
        console.print(table)
        for problem in problems:
            console.print(problem, soft_wrap=True)
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
        console.print(note, soft_wrap=True)
    title = f"{plan.protocol} stream of {dataset}, seed {seed}"
    console.print(_task_table(stream, opened, title))
    console.print(_information_given(stream), soft_wrap=True)
    if plot is not None:
        _plot(stream, opened, title, plot)
        console.print(f"Plot written to {plot}", soft_wrap=True)


def _protocol_table() -> tuple[Table, list[str]]:
    """The protocols, and what is wrong with those of other packages that cannot be loaded."""
    from rich.box import SIMPLE
    from rich.table import Table

    from prol import registry
    from prol.data.streams import SHARED_ARGUMENTS
    from prol.options import describe_options, own_arguments

    table = Table(box=SIMPLE)
    for title in ("protocol", "what it is", "given by default", "its own options (-P)"):
        table.add_column(title)
    found, problems = registry.load_all("protocols")
    for name, order in found.items():
        allowed, defaults = describe_options(order), own_arguments(order)
        options = own_arguments(order, SHARED_ARGUMENTS)
        own = [f"{option}={_shown(defaults[option])}: {allowed[option]}" for option in options]
        given = "boundaries, classes" if defaults.get("boundaries") else "nothing"
        table.add_row(name, (order.__doc__ or "").strip().partition("\n")[0], given, "\n".join(own))
    return table, problems


def _shown(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _task_table(stream: Stream, dataset: Dataset, title: str) -> Table:
    from rich.box import SIMPLE
    from rich.table import Table

    from prol.data.streams import summarise_tasks

    table = Table(box=SIMPLE, title=title, title_justify="left")
    for column in ("task", "samples", "chunks", "own classes", "classes present", "of other tasks' classes, %"):
        table.add_column(column, justify="right")
    for task, summary in enumerate(summarise_tasks(stream, dataset.train.labels)):
        counts = (task + 1, summary.samples, summary.chunks, summary.own_classes, summary.classes_present)
        table.add_row(*map(str, counts), f"{100 * summary.foreign_share:.1f}")
    return table


def _information_given(stream: Stream) -> str:
    given = (stream.boundaries_told, stream.classes_announced)
    boundaries, classes = ("yes" if one else "no" for one in given)
    return f"Given to the learner: task boundaries: {boundaries}, classes of next task: {classes}."


def _plot(stream: Stream, dataset: Dataset, title: str, file: Path) -> None:
    from itertools import accumulate

    from prol.data.streams import class_presence, summarise_tasks
    from prol.report.stream_plot import plot_stream

    labels = dataset.train.labels
    sizes = [task.samples for task in summarise_tasks(stream, labels)]
    names = [dataset.class_names[number] for group in stream.task_classes for number in group]
    starts = list(accumulate(sizes[:-1], initial=0))
    plot_stream(class_presence(stream, labels, min(_MOST_BINS, sum(sizes))), starts, names, title, file)
