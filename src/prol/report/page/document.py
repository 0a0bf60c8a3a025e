"""The page: one file that needs no other, no network and no script to be read; and its plots and tables as files."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from markupsafe import Markup

from prol.files import write_text
from prol.report.html import render, source
from prol.report.page.parts import best_line, parts_of
from prol.report.page.search import LeftOut
from prol.report.page.sections import Section
from prol.report.run import MEASURES
from prol.report.table import printable


def write_page(sections: Sequence[Section], left_out: Sequence[LeftOut], file: Path) -> None:
    """Writes the report of some sections, and of what is not in it, as one HTML file."""
    write_text(file, page_of(sections, left_out))


def page_of(sections: Sequence[Section], left_out: Sequence[LeftOut]) -> str:
    """The whole page as text; everything that comes from files is escaped."""
    style, script = source("page.css"), source("sort.js")
    anytime = any(row.a_auc for section in sections for row in section.rows)
    runs = sum(len(runs) for section in sections for runs in section.runs_of.values())
    page = render(
        "page.html",
        title=f"Report on {', '.join(dict.fromkeys(section.title.partition(':')[0] for section in sections))}",
        # What prol did not write cannot run or be loaded, even if a name got through the escaping.
        policy=Markup(
            f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{_sha256(script)}'"
        ),
        count=f"{counted(runs, 'run')} on {counted(len(sections), 'stream')}",
        contents=[(f"s{number}", section.title) for number, section in enumerate(sections, start=1)],
        left_out=[(printable(one.run), printable(one.reason)) for one in left_out],
        measures={name: meaning for name, meaning in MEASURES.items() if anytime or name != "A_AUC"},
        sections=[_section(f"s{number}", section) for number, section in enumerate(sections, start=1)],
        style=Markup(style),
        script=Markup(script),
    )
    return str(page)


def _section(key: str, section: Section) -> dict[str, object]:
    parts = parts_of(section)
    return {
        "key": key,
        "title": section.title,
        "best": best_line(section),
        "headline": printable(section.headline),
        "contents": [(f"{key}-{part.key}", part.title) for part in parts],
        "parts": parts,
    }


def counted(number: int, thing: str) -> str:
    """A number of things.

    >>> counted(1, "run"), counted(2, "run")
    ('1 run', '2 runs')
    """
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def export(sections: Sequence[Section], folder: Path) -> list[Path]:
    """Writes `FOLDER/STREAM/NAME` as .png and .svg for each plot, as .csv and .tex for each table."""
    written: list[Path] = []
    for section in sections:
        place = folder / section.key
        place.mkdir(parents=True, exist_ok=True)
        for part in parts_of(section):
            for plot in (*part.plots, *part.folded_plots):
                for kind in ("png", "svg"):
                    plot.write(place / f"{plot.name}.{kind}")
                    written.append(place / f"{plot.name}.{kind}")
            for table in (*part.tables, *part.folded_tables):
                for ending, text in (("csv", table.csv()), ("tex", table.latex())):
                    (place / f"{table.name}.{ending}").write_text(text, encoding="utf-8")
                    written.append(place / f"{table.name}.{ending}")
    return written
