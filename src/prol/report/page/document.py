"""The page: one file that needs no other, no network and no script to be read; and its plots and tables as files.

Each section of it has parts, in the order in which they are read, of notes, plots and tables.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from prol.files import write_text
from prol.report.comparison import RAN_BESIDE
from prol.report.comparison_plot import memory_plot
from prol.report.page import tables
from prol.report.page.plots import anytime_curves, history_curves, matrix_plots, speed_plot
from prol.report.page.search import LeftOut
from prol.report.page.sections import Section
from prol.report.plot import INK, LINE, QUIET, Plot
from prol.report.run import MEASURES
from prol.report.stream_plot import stream_note, stream_plot
from prol.report.table import Table, printable, readable

_PAGE_COLOURS = {INK: "var(--ink)", LINE: "var(--line)", QUIET: "var(--quiet)"}
_COLOUR = re.compile("|".join(_PAGE_COLOURS), re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")

MATRICES_SHOWN = 3


@dataclass(frozen=True)
class ReportPart:
    """One heading and the content below it; folded tables and plots open on a click."""

    key: str
    title: str
    notes: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    tables: Sequence[Table] = ()
    folded_plots: Sequence[Plot] = ()
    folded_tables: Sequence[Table] = ()
    small: bool = False
    """Whether its plots are smaller than others."""


def parts_of(section: Section) -> list[ReportPart]:
    """Everything in the files of a section's runs."""
    return [
        _comparison(section),
        _history(section),
        _anytime(section),
        _matrices(section),
        _memory(section),
        _speed(section),
        ReportPart(
            "stream",
            "The stream",
            [stream_note(section.first)],
            [stream_plot(section.first)],
            folded_tables=[tables.tasks(section)],
        ),
        ReportPart("told", "Information given to each learner", tables=[tables.given(section)]),
        ReportPart(
            "settings",
            "Settings",
            [f"Note on the data: {printable(note)}" for note in section.first.config["dataset"].get("notes") or []],
            tables=[tables.stream_settings(section)],
            folded_tables=[tables.method_settings(section)],
        ),
    ]


def _comparison(section: Section) -> ReportPart:
    notes = ["Bytes stored are those of parameters, statistics and samples together, besides the frozen backbone."]
    seeds = {seed for row in section.rows for seed in row.seeds}
    if any(set(row.seeds) != seeds for row in section.rows):
        notes.append("Not all methods ran with the same seeds: see the last column.")
    if any(row.side_by_side for row in section.rows):
        notes.append(RAN_BESIDE)
    return ReportPart("comparison", "Comparison", notes, tables=[tables.comparison(section)])


def _history(section: Section) -> ReportPart:
    return ReportPart(
        "history",
        "After each task",
        ["Bands are one sample deviation over seeds up and down; grey lines are the other methods."],
        [plot for curves in history_curves(section) for plot in curves.plots()],
        folded_tables=[
            tables.history(section, "history", "Average accuracy after each task, in %", "average_accuracy"),
            tables.history(section, "forgetting", "Forgetting after each task, in %", "forgetting_history"),
        ],
    )


def _anytime(section: Section) -> ReportPart:
    title, curves = "At any time", anytime_curves(section)
    if curves is None:
        return ReportPart(
            "anytime", title, ["Left out: no run was evaluated between tasks (`prol run --points 20` does)."]
        )
    notes = ["Accuracy on the test images of all classes seen so far."]
    missing = len(section.rows) - len(curves.lines)
    if missing:
        notes.append(f"{missing} of {len(section.rows)} methods were not evaluated between tasks and are left out.")
    return ReportPart("anytime", title, notes, curves.plots())


def _matrices(section: Section) -> ReportPart:
    plots = matrix_plots(section)
    return ReportPart(
        "matrices",
        "Accuracy matrices",
        ["In %, mean over seeds: the test images of each task (down) after each task (across)."],
        plots[:MATRICES_SHOWN],
        folded_plots=plots[MATRICES_SHOWN:],
        small=True,
    )


def _memory(section: Section) -> ReportPart:
    plot = memory_plot(section.rows, f"Final accuracy against bytes stored, {section.title}")
    notes = ["Besides the frozen backbone and the optimiser's moments. Bars are one sample deviation over seeds."]
    return ReportPart("memory", "Stored state", notes, [plot], folded_tables=[tables.memory(section)])


def _speed(section: Section) -> ReportPart:
    plot, table = speed_plot(section), tables.throughput(section)
    if plot is None or table is None:
        return ReportPart("speed", "Speed", ["Left out: no run has a timing.json."])
    notes = _timed_on(section)
    if any(row.side_by_side for row in section.rows):
        notes.append("Hatched: other runs were running at the same time, so that it says little.")
    missing = [row.name for row in section.rows if row.images_per_second is None]
    if missing:
        notes.append(f"Left out, for they have no timing.json: {', '.join(missing)}.")
    if any(cell.text == "reused" for row in table.rows for cell in row):
        notes.append("Where features of test images were reused, the speed of testing was not measured.")
    return ReportPart("speed", "Speed", notes, [plot], folded_tables=[table])


def _timed_on(section: Section) -> list[str]:
    """The hardware, where the files say it."""
    hardware = {
        name: {printable(one) for run in runs for one in run.hardware} for name, runs in section.runs_of.items()
    }
    known = sorted(set().union(*hardware.values()))
    if not known:
        return []
    if all(names == set(known) for names in hardware.values()):
        return [f"Timed on {' and '.join(known)}."]
    each = "; ".join(
        f"{name} on {' and '.join(sorted(names)) or 'unknown hardware'}" for name, names in hardware.items()
    )
    return [f"Not timed on the same hardware, so that speeds cannot be compared: {each}."]


def best_line(section: Section) -> str:
    """The result in one sentence."""
    best = section.rows[0]
    samples = best.footprint["samples_stored"]["count"]
    stored = f"{samples:,} samples" if samples else "no sample"
    line = f"Highest final accuracy: {best.name}, {best.faa.text()} %, storing {stored}"
    return f"{line} and {readable(best.bytes_kept, 'B')} in all."


def write_page(sections: Sequence[Section], left_out: Sequence[LeftOut], file: Path) -> None:
    """Writes the report of some sections, and of what is not in it, as one HTML file."""
    write_text(file, page_of(sections, left_out))


def page_of(sections: Sequence[Section], left_out: Sequence[LeftOut]) -> str:
    """The whole page as text; everything that comes from files is escaped."""
    style, script = source("page.css"), source("sort.js")
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    anytime = any(row.a_auc for section in sections for row in section.rows)
    runs = sum(len(runs) for section in sections for runs in section.runs_of.values())
    page = render(
        "page.html",
        title=f"Report on {', '.join(dict.fromkeys(section.title.partition(':')[0] for section in sections))}",
        # What prol did not write cannot run or be loaded, even if a name got through the escaping.
        policy=Markup(f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"),
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


@cache
def _environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("prol.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["breaks"] = lambda name: re.split(r"(?<=[:,_])", name)
    templates.filters["code"] = lambda line: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(line)))
    templates.filters["svg"] = inline_svg
    return templates


def render(template: str, **values: Any) -> Markup:
    """A template of the package with its values; what comes from files is escaped."""
    return Markup(_environment().get_template(template).render(**values))


def source(template: str) -> str:
    """The text of a file among the templates."""
    environment = _environment()
    assert environment.loader is not None
    return environment.loader.get_source(environment, template)[0]


def inline_svg(plot: Plot, key: str) -> Markup:
    """The plot as an `svg` element: without addresses, in colours of the page; no other plot of it has this `key`."""
    drawing = plot.bytes("svg", titled=False).decode("utf-8")
    box = re.search(r'viewBox="([0-9. -]+)"', drawing)
    assert box is not None
    content = drawing[drawing.index(">", box.end()) + 1 :]
    content = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", content, flags=re.DOTALL)
    # Only within tags: between them are names of methods and classes, which matplotlib has escaped.
    content = _TAG.sub(lambda tag: _of_the_page(tag[0], key), content)
    content = re.sub(r">\s*\n\s*<", "><", content)
    return Markup(f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(plot.alt)}">{content.strip()}')


def _of_the_page(tag: str, key: str) -> str:
    tag = " ".join(tag.split())
    # Groups are named, but nobody refers to them.
    tag = re.sub(r' id="[^"]*"', "", tag) if tag.startswith("<g ") else re.sub(r'\bid="', f'id="{key}-', tag)
    tag = tag.replace("xlink:href=", "href=")
    tag = re.sub(r'(href="|url\()#', rf"\1#{key}-", tag)
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    tag = re.sub(r"font: ([0-9.]+px) [^;\"]*", r"font-size: \1", tag)
    tag = _COLOUR.sub(lambda colour: _PAGE_COLOURS[colour[0].upper()], tag)
    return tag if "base64" in tag else _LONG_NUMBER.sub(r"\1", tag)
