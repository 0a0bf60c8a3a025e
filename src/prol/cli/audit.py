"""`prol audit`: what a saved learner or a run keeps of what it saw."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from prol.cli import arguments as a
from prol.cli.models import Weights

KEEPS = 1


def audit(
    folder: Annotated[Path, typer.Argument(help="The folder of a saved learner or of a run.")],
    few: Annotated[int, typer.Option(help="Name classes of fewer images than this.")] = 5,
    images: Annotated[int, typer.Option(help="Made-up images that fresh learners are taught, then more of them.")] = 32,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 where samples are kept, or anything grows with them.")
    ] = False,
    form: Annotated[str, typer.Option("--format", help="table or json.")] = "table",
    out: Annotated[Path | None, typer.Option(help="File to write in place of printing.")] = None,
    backbone: Weights = None,
    device: a.Device = "auto",
) -> None:
    """Show every tensor and file that is kept, test whether they grow with samples, and search them for images."""
    import json

    from prol.artifacts.atomic import write_file
    from prol.cli.models import _tell
    from prol.runs.auditing import audit_folder

    if form not in ("table", "json"):
        raise ValueError(f"unknown format {form!r}: use table or json")
    found = audit_folder(folder, _tell, backbone, device, few, images)
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n" if form == "json" else _table(found)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_file(out, lambda unfinished: _write(unfinished, text))
    if strict and not found["keeps_no_samples"]:
        raise typer.Exit(KEEPS)


def _table(found: dict[str, object]) -> str:
    from rich.console import Console

    from prol.report.audit import audit_tables

    console = Console(width=140, no_color=True, highlight=False, markup=False, soft_wrap=False)
    with console.capture() as captured:
        console.print(audit_tables(found))
    return captured.get()


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
