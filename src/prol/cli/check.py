"""`prol check`: what may be wrong with images, a saved learner or runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prol.cli import arguments as a
from prol.cli.terminal import output

ISSUES = 1


def check(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A run, a folder of runs, a saved learner, or a folder of images.")
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Also say what passed, what does not apply and why, and list every place.")
    ] = False,
    form: Annotated[str, typer.Option("--format", help="The output format: table or json.")] = "table",
) -> None:
    """Look for what may be wrong, from files alone; the exit status is 1 if there is an issue.

    Each check has a code and a section in docs/check.md that says what to do.
    """
    a.require_format(form, "table", "json")
    from prol.checks import diagnose

    found = diagnose(path)
    if form == "json":
        import json

        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        console = output()
        for line in found.lines(everything):
            console.say(line)
    if found.has_issues:
        raise typer.Exit(ISSUES)
