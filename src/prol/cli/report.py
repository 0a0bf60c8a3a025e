"""`prol report`: finished runs as one page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated

import typer

from prol.cli.terminal import output


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or folders that hold runs, at any depth.")
    ],
    out: Annotated[Path, typer.Option(help="The page, a file that ends in .html.")] = Path("report.html"),
    export: Annotated[
        Path | None, typer.Option(help="Also write every picture (.png, .svg) and table (.csv, .tex) into this folder.")
    ] = None,
) -> None:
    """Write finished runs as one HTML page: tables and pictures, in one file that needs no other.

    Runs on the same stream share a table; each stream has its own section.
    """
    from prol.report.page import counted, find_runs, printable, sections_of, write_page
    from prol.report.page import export as write_exports
    from prol.report.plot import require_matplotlib

    console = output()
    require_matplotlib()
    _require_page(out)
    if export is not None:
        _require_exports(export)
    found = find_runs(runs)
    sections, doubles = sections_of(found)
    left_out = [*found.left_out, *doubles]
    for one in left_out:
        console.say(f"left out: {printable(one.run)}: {printable(one.reason)}")
    with _plain_error(f"cannot write the page to {out}", "--out"):
        write_page(sections, left_out, out)
    count = sum(len(one) for section in sections for one in section.runs_of.values())
    console.say(f"Report of {counted(count, 'run')} on {counted(len(sections), 'stream')} written to {out}")
    if export is not None:
        with _plain_error(f"cannot export to {export}", "--export"):
            written = write_exports(sections, export)
        console.say(f"{len(written)} pictures and tables written to {export}")


def _require_page(out: Path) -> None:
    """Refuses an --out to which the page cannot be written, before anything is read."""
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"cannot write the page to {out}: its name must end in .html")
    with _plain_error(f"cannot write the page to {out}", "--out"):
        if out.is_dir():
            raise ValueError(f"cannot write the page to {out}: it is a folder, give a file that ends in .html")
        if not out.parent.is_dir():
            missing = f"the folder {out.parent} does not exist, make it or"
            what = f"{out.parent} is a file," if out.parent.exists() else missing
            raise ValueError(f"cannot write the page to {out}: {what} choose another --out")
        TemporaryFile(dir=out.parent).close()


def _require_exports(folder: Path) -> None:
    """The folder itself may be missing; its nearest existing parent must be writable."""
    with _plain_error(f"cannot export to {folder}", "--export"):
        above = next(place for place in (folder, *folder.absolute().parents) if place.exists())
        if not above.is_dir():
            raise ValueError(f"cannot export to {folder}: {above} is a file, give a folder")
        TemporaryFile(dir=above).close()


@contextmanager
def _plain_error(problem: str, option: str) -> Iterator[None]:
    """A system error as a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OSError(f"{problem}: {reason}; choose another {option}") from error
