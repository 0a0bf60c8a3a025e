"""`prol classes`: the classes of a saved learner, listed, renamed, merged and removed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a
from prol.cli.terminal import output

if TYPE_CHECKING:
    from prol.classes import Label
    from prol.learner import Removal

app = typer.Typer(help="List, rename, merge and remove the classes of a saved learner.", no_args_is_help=True)

Integer = Annotated[bool, typer.Option("--integer", help="Treat names as whole numbers: 1 is not the text 1.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before anything is erased.")]
Note = Annotated[str, typer.Option(help="A note for operations.jsonl, such as the number of a request.")]


@app.command("list")
def list_(
    folder: a.Saved,
    form: Annotated[str, typer.Option("--format", help="The output format: table or json.")] = "table",
) -> None:
    """List the classes and, where counted, the number of training images of each."""
    from prol.runs.saved_folders import list_classes

    a.require_format(form, "table", "json")
    classes = list_classes(folder)
    if form == "json":
        typer.echo(json.dumps([{"label": label, "count": count} for label, count in classes], indent=2))
        return
    from prol.report.table import Table

    rows = [
        [
            _shown(label),
            "number" if isinstance(label, int) else "text",
            "not counted" if count is None else f"{count:,}",
        ]
        for label, count in classes
    ]
    output().print(Table.of(("class", "is", "images"), rows, "lll").rich())


@app.command()
def rename(
    folder: a.Saved,
    old: str,
    new: str,
    integer: Integer = False,
    note: Note = "",
    backbone: a.Weights = None,
    device: a.Device = "auto",
) -> None:
    """Give a class another name."""
    from prol.runs.saved_folders import ClassFolder

    names = _label(old, integer), _label(new, integer)
    ClassFolder(folder, backbone, device, note).rename(*names)
    typer.echo(f"Renamed to {_shown(names[1])} in {folder}")


@app.command()
def merge(
    folder: a.Saved,
    source: str,
    into: str,
    integer: Integer = False,
    yes: Yes = False,
    note: Note = "",
    backbone: a.Weights = None,
    device: a.Device = "auto",
) -> None:
    """Merge one class into another; this cannot be undone."""
    from prol.runs.saved_folders import ClassFolder

    names = _label(source, integer), _label(into, integer)
    _confirm(f"Merge {_shown(names[0])} into {_shown(names[1])} permanently?", yes)
    _print(ClassFolder(folder, backbone, device, note).merge(*names), "as if both had been learnt under one name")


@app.command()
def remove(
    folder: a.Saved,
    name: str,
    integer: Integer = False,
    yes: Yes = False,
    note: Note = "",
    backbone: a.Weights = None,
    device: a.Device = "auto",
) -> None:
    """Erase what is stored of a class alone, and say what still holds a trace; this cannot be undone."""
    from prol.runs.saved_folders import ClassFolder

    label = _label(name, integer)
    _confirm(f"Remove {_shown(label)} permanently?", yes)
    _print(ClassFolder(folder, backbone, device, note).remove(label), "as if the class had never been seen")


def _label(text: str, integer: bool) -> Label:
    if not integer:
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number: leave out --integer, or give a number") from None


def _confirm(question: str, yes: bool) -> None:
    try:
        agreed = yes or typer.confirm(question)
    except typer.Abort:  # no terminal to reply from
        agreed = False
    if not agreed:
        raise ValueError("nothing was changed; --yes does it without asking")


def _print(removal: Removal, exactly: str) -> None:
    for title, sentences in (("Erased:", removal.erased), ("Remains:", removal.remains)):
        typer.echo("\n- ".join((title, *sentences)))
    typer.echo(f"The rest is{'' if removal.exact else ' not'} {exactly}.")


def _shown(label: Label) -> str:
    """A name without characters that a terminal would interpret."""
    return "".join(character for character in str(label) if character.isprintable())
