"""`prol report`: finished runs as one page to read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or folders that hold runs, at any depth.")
    ],
    out: Annotated[Path, typer.Option(help="The page, a file that ends in .html.")] = Path("report.html"),
    export: Annotated[
        Path | None,
        typer.Option(help="Also write every picture (.png, .svg) and table (.csv, .tex) into this folder."),
    ] = None,
) -> None:
    """Write finished runs as one HTML page: tables and pictures, in one file that needs no other.

    Runs on the same stream stand in one table; each other stream has a section of its own.
    """
    from prol.cli.terminal import output
    from prol.report.figures import require_matplotlib
    from prol.report.page import counted, find_runs, sections_of, write_page
    from prol.report.page import export as write_exports

    console = output()
    require_matplotlib()
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"cannot write the page to {out}: its name must end in .html")
    if not out.parent.is_dir():
        raise FileNotFoundError(f"cannot write the page to {out}: the folder {out.parent} does not exist")
    if export is not None and export.exists() and not export.is_dir():
        raise ValueError(f"cannot export to {export}: it is a file, give a folder")
    found = find_runs(runs)
    sections, doubles = sections_of(found)
    left_out = [*found.left_out, *doubles]
    for one in left_out:
        console.print(f"left out: {one.run}: {one.reason}", soft_wrap=True)
    write_page(sections, left_out, out)
    count = sum(len(one) for section in sections for one in section.runs_of.values())
    console.print(
        f"Report of {counted(count, 'run')} on {counted(len(sections), 'stream')} written to {out}", soft_wrap=True
    )
    if export is not None:
        written = write_exports(sections, export)
        console.print(f"{len(written)} pictures and tables written to {export}", soft_wrap=True)
