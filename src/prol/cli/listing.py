"""`prol methods` and `prol datasets`: what there is to run."""

from __future__ import annotations

from typing import Annotated

import typer


def methods(
    name: Annotated[str | None, typer.Argument(help="Show the options of this method instead.")] = None,
) -> None:
    """List the methods, or one method's options with their defaults."""
    from rich.box import SIMPLE
    from rich.table import Table

    from prol import registry
    from prol.cli.terminal import output

    table = Table(box=SIMPLE)
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
        for known in sorted(registry.names("methods")):
            kind = registry.method(known)
            keeps = "yes" if kind.keeps_samples else "no"
            table.add_row(known, kind.family, keeps, _first_line(kind), kind.citation)
    output().print(table)


def datasets() -> None:
    """List the data sets."""
    from rich.box import SIMPLE
    from rich.table import Table

    from prol import registry
    from prol.cli.terminal import output

    table = Table(box=SIMPLE)
    table.add_column("data set")
    table.add_column("what it is")
    for known in sorted(registry.names("datasets")):
        table.add_row(known, _first_line(registry.dataset(known)))
    output().print(table)


def _first_line(thing: object) -> str:
    return (thing.__doc__ or "").strip().partition("\n")[0]
