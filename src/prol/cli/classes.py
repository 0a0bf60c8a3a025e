"""`prol classes`: the classes of a saved learner, listed, renamed, merged and removed."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prol.cli import arguments as a
from prol.cli.terminal import output

if TYPE_CHECKING:
    from prol.classes import Label
    from prol.learner import Removal
    from prol.runs.saved_folders import ClassFolder

app = typer.Typer(help="List, rename, merge and remove the classes of a saved learner.", no_args_is_help=True)

Old = Annotated[str, typer.Argument(help="The class to rename.")]
New = Annotated[str, typer.Argument(help="Its new name.")]
Source = Annotated[str, typer.Argument(help="The class that is merged, and removed.")]
Into = Annotated[str, typer.Argument(help="The class that it becomes part of.")]
Name = Annotated[str, typer.Argument(help="The class to remove.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before anything is erased.")]


@dataclass(frozen=True)
class ChangeFlags:
    """How names are read, and what a change of classes needs and records."""

    integer: bool = a.flag("Treat names as whole numbers: 1 is not the text 1.", None, "--integer", default=False)
    note: str = a.flag("A note for operations.jsonl, such as the number of a request.", default="")
    backbone: a.Weights = None
    device: a.Device = "auto"

    def label(self, text: str) -> Label:
        if not self.integer:
            return text
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a whole number: leave out --integer, or give a number") from None

    def open(self, folder: Path) -> ClassFolder:
        from prol.runs.saved_folders import ClassFolder

        return ClassFolder(folder, self.backbone, self.device, self.note)


@app.command("list")
def list_(
    folder: a.Saved, form: Annotated[str, typer.Option("--format", help="The output format: table or json.")] = "table"
) -> None:
    """List the classes and, where counted, the number of training images of each."""
    from prol.runs.saved_folders import list_classes

    a.require_format(form, "table", "json")
    classes = list_classes(folder)
    if form == "json":
        typer.echo(json.dumps([{"label": label, "count": count} for label, count in classes], indent=2))
        return
    from prol.report.table import Table

    rows = []
    for label, count in classes:
        kind = "number" if isinstance(label, int) else "text"
        rows.append([_shown(label), kind, "not counted" if count is None else f"{count:,}"])
    output().print(Table.of(("class", "is", "images"), rows, "lll").rich())


@app.command()
@a.with_flags
def rename(folder: a.Saved, old: Old, new: New, flags: ChangeFlags) -> None:
    """Give a class another name."""
    label = flags.label(new)
    flags.open(folder).rename(flags.label(old), label)
    typer.echo(f"Renamed to {_shown(label)} in {folder}")


@app.command()
@a.with_flags
def merge(folder: a.Saved, source: Source, into: Into, flags: ChangeFlags, yes: Yes = False) -> None:
    """Merge one class into another; this cannot be undone."""
    names = flags.label(source), flags.label(into)
    _confirm(f"Merge {_shown(names[0])} into {_shown(names[1])} permanently?", yes)
    _print(flags.open(folder).merge(*names), "as if both had been learnt under one name")


@app.command()
@a.with_flags
def remove(folder: a.Saved, name: Name, flags: ChangeFlags, yes: Yes = False) -> None:
    """Erase what is stored of a class alone, and say what still holds a trace; this cannot be undone."""
    label = flags.label(name)
    _confirm(f"Remove {_shown(label)} permanently?", yes)
    _print(flags.open(folder).remove(label), "as if the class had never been seen")


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
