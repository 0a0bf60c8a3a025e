"""`prol methods` and `prol datasets`: what there is to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table


def methods(
    name: Annotated[str | None, typer.Argument(help="Show the options of this method instead.")] = None,
) -> None:
    """List the methods, or one method's options with their defaults."""
    from rich.box import SIMPLE
    from rich.table import Table

    from prol import registry

    table, problems = Table(box=SIMPLE), list[str]()
    if name is not None:
        import dataclasses

        from prol.options import describe_options

        for title in ("option", "default", "may be"):
            table.add_column(title)
        options = registry.method(name).read_options({})
        allowed = describe_options(type(options))
        for option, default in dataclasses.asdict(options).items():
            shown = str(default).lower() if default is None or isinstance(default, bool) else str(default)
            table.add_row(option, shown, allowed[option])
    else:
        for title in ("method", "family", "keeps samples", "what it is", "source"):
            table.add_column(title)
        kinds, problems = registry.load_all("methods")
        for known, kind in sorted(kinds.items()):
            keeps = "yes" if kind.keeps_samples else "no"
            family, citation = (getattr(kind, of, "") for of in ("family", "citation"))  # another package may lack them
            table.add_row(known, family, keeps, _first_line(kind), citation)
    _show(table, problems)


def datasets() -> None:
    """List the data sets."""
    from rich.box import SIMPLE
    from rich.table import Table

    from prol import registry

    table = Table(box=SIMPLE)
    table.add_column("data set")
    table.add_column("what it is")
    found, problems = registry.load_all("datasets")
    for known, open_dataset in sorted(found.items()):
        table.add_row(known, _first_line(open_dataset))
    _show(table, problems)


def _show(table: Table, problems: list[str]) -> None:
    """What there is, then what other packages have added but cannot be loaded."""
    from prol.cli.terminal import output

    console = output()
    console.print(table)
    for problem in problems:
        console.print(problem, soft_wrap=True)


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]
