"""A table with its words, and its forms: HTML to read, CSV with every digit, LaTeX for a paper."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from prol.report.comparison import Spread
from prol.report.comparison_table import readable

NOT_KNOWN = "-"

Value = str | float | int | bool | None


@dataclass(frozen=True)
class Cell:
    """What is read, and the value behind it; a measure over seeds has a deviation too."""

    text: str
    value: Value = None
    deviation: float | None = None


@dataclass(frozen=True)
class Table:
    """`columns` are titles; the first names the row. `spreads` are the titles of measures over seeds."""

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    words: Sequence[str] = ()
    """Titles of columns that hold words, which begin at the left."""
    spreads: Sequence[str] = ()


def words(text: object) -> Cell:
    return Cell(str(text), str(text))


def number(value: float | None, digits: int = 2) -> Cell:
    return Cell(NOT_KNOWN, None) if value is None else Cell(f"{value:,.{digits}f}", value)


def spread(measure: Spread | None, digits: int = 2) -> Cell:
    if measure is None:
        return Cell(NOT_KNOWN, None)
    text = f"{measure.mean:.{digits}f}"
    if measure.deviation is not None:
        text += f" ± {measure.deviation:.{digits}f}"
    return Cell(text, measure.mean, measure.deviation)


def size(amount: int, unit: str = "B", none: str = "0") -> Cell:
    return Cell(readable(amount, unit) if amount else none, amount)


def yes(value: Any) -> Cell:
    return Cell(NOT_KNOWN, None) if value is None else Cell("yes" if value else "no", bool(value))


def as_html(table: Table) -> str:
    """In a box of its own that scrolls, with titles that are read out with every cell."""
    left = [title in table.words for title in table.columns]
    head = "".join(
        f'<th scope="col"{_side(at_left)}>{escape(title)}</th>'
        for title, at_left in zip(table.columns, left, strict=True)
    )
    body = []
    for row in table.rows:
        first, *others = row
        cells = "".join(
            f"<td{_side(at_left)}{_sorted_by(cell)}>{escape(cell.text)}</td>"
            for cell, at_left in zip(others, left[1:], strict=True)
        )
        body.append(f'<tr><th scope="row">{_breakable(first.text)}</th>{cells}</tr>')
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(table.caption)}">'
        f'<table aria-label="{escape(table.caption)}"><thead><tr>{head}</tr></thead>\n<tbody>'
        + "\n".join(body)
        + "</tbody></table></div>\n"
    )


def as_csv(table: Table) -> str:
    """Values with all their digits; the deviation of a measure has a column of its own."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([name for title in table.columns for name in _csv_titles(table, title)])
    for row in table.rows:
        writer.writerow(
            [
                value
                for title, cell in zip(table.columns, row, strict=True)
                for value in ([cell.value, cell.deviation] if title in table.spreads else [cell.value])
            ]
        )
    return file.getvalue()


def as_latex(table: Table) -> str:
    """A `tabular` with rules of the package booktabs, to be put into a `table` by whoever has one."""
    sides = "".join("l" if index == 0 or title in table.words else "r" for index, title in enumerate(table.columns))
    lines = [
        f"% {' '.join(table.caption.split())}",
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{{sides}}}",
        "\\toprule",
        _latex_line(table.columns),
        "\\midrule",
        *(_latex_line([cell.text for cell in row]) for row in table.rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
}


def latex_escaped(text: str) -> str:
    """Text that LaTeX sets as it stands.

    >>> print(latex_escaped("prol_plus:a=50% & more"))
    prol\\_plus:a=50\\% \\& more
    """
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _latex_line(texts: Sequence[str]) -> str:
    return " & ".join(map(latex_escaped, texts)) + r" \\"


def _csv_titles(table: Table, title: str) -> list[str]:
    return [title, f"{title} deviation"] if title in table.spreads else [title]


def _breakable(name: str) -> str:
    """A long name breaks where its options begin rather than within a word."""
    return re.sub(r"([:,_])", r"\1<wbr>", escape(name))


def _side(at_left: bool) -> str:
    return ' class="words"' if at_left else ""


def _sorted_by(cell: Cell) -> str:
    counted = isinstance(cell.value, int | float) and not isinstance(cell.value, bool)
    return f' data-value="{cell.value!r}"' if counted else ""
