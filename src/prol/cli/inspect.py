"""`prol show`, `params`, `methods` and `datasets`: a run's result, parameter counts, and what can be run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from prol.cli import arguments as a
from prol.cli.terminal import PatientConsole, output


def show(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of a saved learner.")],
    plot: Annotated[Path | None, typer.Option(help="Also draw the run to this .png or .svg file.")] = None,
) -> None:
    """Print the result of a run, or what a saved learner is."""
    from prol.report import headline, plot_run, result_tables
    from prol.runs import RunFolder
    from prol.runs.saved_folders import describe_saved

    folder, console = RunFolder(run), output()
    if (run / "meta.json").is_file() and not folder.config.is_file():
        if plot is not None:
            raise ValueError(f"{run} is a saved learner, and only a run can be drawn: leave out --plot")
        for line in describe_saved(run):
            console.say(line)
        console.say(f"Predict with `prol predict {run} IMAGES`; in Python prol.load({str(run)!r}) continues learning")
        return
    folder.require_run()
    config = folder.read(folder.config)
    if folder.status() == "unfinished" and plot is None:
        console.print(headline(config))
        console.say(f"The run is not finished: continue with `prol resume {run}`")
        return
    result = folder.read(folder.result)
    console.print(result_tables(config, result, folder.read(folder.timing)))
    if plot is not None:
        plot_run(config, result, plot)
        console.say(f"Plot written to {plot}")


def params(
    method: Annotated[str, typer.Argument(help="A name that `prol methods` lists.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the method.")
    ] = None,
    backbone: Annotated[str, typer.Option(help="The network, as for `prol run`; no weights are loaded.")] = "auto",
    image_size: a.ImageSize = None,
    classes: Annotated[int, typer.Option(help="The number of classes.")] = 100,
    tasks: Annotated[int, typer.Option(help="The number of tasks.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Count what a method trains and stores, from shapes alone."""
    from prol.options import parse_pairs
    from prol.runs.inspection import count_parameters

    counts = count_parameters(method, parse_pairs(options or []), a.sized(backbone, image_size), classes, tasks)
    if as_json:
        import json

        typer.echo(json.dumps(counts, indent=2))
    else:
        _print_counts(counts, output())


def _print_counts(counts: dict[str, Any], console: PatientConsole) -> None:
    from prol.report import footprint_table

    classes, tasks = counts["classes"], counts["tasks"]
    console.say(
        f"{counts['method']} on {counts['backbone']}: {classes} classes in {tasks} tasks. The table counts what is "
        "there at that time: the rows of classes so far, and of those what the optimiser may still change."
    )
    moments = {"during task 1:": counts["during_first_task"]}
    if tasks > 1:
        moments[f"during task {tasks}:"] = counts["during_last_task"]
    console.print(footprint_table(moments))
    if counts["samples"] is not None:
        console.say(f"Samples are stored in addition as they are learnt: {counts['samples']}")
    for convention, count in counts["paper_convention"].items():
        console.say(f"By the paper's convention, {convention}: {count:,}")


def methods(
    name: Annotated[str | None, typer.Argument(help="Show the options of this method instead.")] = None,
) -> None:
    """List the methods, or the options of one method."""
    from prol import registry

    if name is not None:
        print_list(("option", "default", "may be", "meaning"), _options(name))
        return
    kinds, problems = registry.load_all("methods")
    rows = []
    for known, kind in sorted(kinds.items()):
        stores = "yes" if kind.keeps_samples else "no"
        family, citation = (getattr(kind, of, "") for of in ("family", "citation"))  # another package may lack them
        rows.append([known, family, stores, first_line(kind), citation])
    print_list(("method", "family", "stores samples", "what it is", "source"), rows, problems)


def datasets() -> None:
    """List the data sets."""
    from prol import registry

    found, problems = registry.load_all("datasets")
    rows = [[known, first_line(open_dataset)] for known, open_dataset in sorted(found.items())]
    print_list(("data set", "what it is"), rows, problems)


def _options(method: str) -> list[list[str]]:
    """Name, default, allowed values and meaning of every option."""
    import dataclasses

    from prol import registry
    from prol.options import describe_options, spell

    options = registry.method(method).read_options({})
    allowed, meanings = describe_options(type(options)), _field_docstrings(type(options))
    return [
        [option, spell(default), allowed[option], meanings.get(option, "")]
        for option, default in dataclasses.asdict(options).items()
    ]


def _field_docstrings(kind: type) -> dict[str, str]:
    """The string after each field of a dataclass and its bases."""
    import ast
    import inspect
    from itertools import pairwise
    from textwrap import dedent

    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            tree = ast.parse(dedent(inspect.getsource(base))).body[0]
        except (OSError, TypeError, SyntaxError):  # a class without source, such as one made in a shell
            continue
        for field, text in pairwise(tree.body if isinstance(tree, ast.ClassDef) else []):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[ast.unparse(field.target)] = " ".join(str(text.value.value).split())
    return found


def print_list(titles: Sequence[str], rows: Sequence[Sequence[str]], problems: Sequence[str] = ()) -> None:
    """A table, then what other packages have registered but cannot be loaded."""
    from prol.report.table import Table

    console = output()
    console.print(Table.of(titles, rows, "l" * len(titles)).rich())
    for problem in problems:
        console.say(problem)


def first_line(thing: object) -> str:
    """The summary of something's docstring."""
    return (thing.__doc__ or "").strip().partition("\n")[0]
