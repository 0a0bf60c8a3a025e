"""A table and its forms: text for a terminal, Markdown, CSV with every digit, LaTeX; templates render it as HTML."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NOT_KNOWN = "-"

CellValue = str | float | int | bool | None


@dataclass(frozen=True)
class Spread:
    """A measure over seeds; its deviation is the sample's (n - 1), and None for a single seed."""

    mean: float
    deviation: float | None
    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(fmean(values), stdev(values) if len(values) > 1 else None, tuple(values))

    def text(self, digits: int = 2, gap: str = " ± ") -> str:
        """Mean and deviation.

        >>> Spread.of([1.0, 2.0]).text(), Spread.of([1.0]).text(1)
        ('1.50 ± 0.71', '1.0')
        """
        mean = f"{self.mean:.{digits}f}"
        return mean if self.deviation is None else f"{mean}{gap}{self.deviation:.{digits}f}"


@dataclass(frozen=True)
class Cell:
    """A text to read and the value behind it; a measure over seeds also has a deviation."""

    text: str
    value: CellValue = None
    deviation: float | None = None

    @property
    def sort_key(self) -> str | None:
        """The number by which a page sorts the cell, None for a text."""
        counted = isinstance(self.value, int | float) and not isinstance(self.value, bool)
        return repr(self.value) if counted else None


def text(value: object) -> Cell:
    return Cell(str(value), str(value))


def printable(text: object) -> str:
    """Names come from untrusted files: none may turn the direction of text or break the file of a plot."""
    return "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in str(text))


def number(value: float | None, digits: int = 2) -> Cell:
    return Cell(NOT_KNOWN) if value is None else Cell(f"{value:,.{digits}f}", value)


def spread(measure: Spread | None, gap: str = " ± ") -> Cell:
    return Cell(NOT_KNOWN) if measure is None else Cell(measure.text(gap=gap), measure.mean, measure.deviation)


def size(amount: int, unit: str = "B", none: str = "0") -> Cell:
    return Cell(readable(amount, unit) if amount else none, amount)


def yes(value: bool | None) -> Cell:
    return Cell(NOT_KNOWN) if value is None else Cell("yes" if value else "no", value)


def readable(number: int, unit: str = "") -> str:
    """Three digits and a size.

    >>> readable(940), readable(153_800), readable(999_999), readable(7_833_800, "B")
    ('940', '154 k', '1 M', '7.83 MB')
    """
    value, sizes = float(number), ["", "k", "M", "G", "T"]
    while value >= 999.5 and len(sizes) > 1:
        value, sizes = value / 1000, sizes[1:]
    return f"{value:.3g} {sizes[0]}{unit}".strip()


@dataclass(frozen=True)
class Table:
    """Rows of cells below titles; the first cell of a row names it.

    Args:
        columns: the titles.
        kinds: one character per column: "l" for text, "r" for numbers, "s" for measures over seeds, which have a
            second column of deviations in CSV. Without it, text first and numbers after it.
        caption: what the table shows.
        name: of its files.
        csv_columns: the titles in CSV, where other programs rely on names that readers no longer see.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    kinds: str = ""
    caption: str = ""
    name: str = ""
    csv_columns: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "kinds", self.kinds or "l" + "r" * (len(self.columns) - 1))

    @classmethod
    def of(cls, columns: Sequence[str], rows: Iterable[Sequence[str]], kinds: str = "", caption: str = "") -> Table:
        """A table of texts alone."""
        return cls(columns, [[text(value) for value in row] for row in rows], kinds, caption)

    def texts(self) -> list[list[str]]:
        return [[cell.text for cell in row] for row in self.rows]

    def rich(self, dense: bool = False) -> RichTable:
        """A table for a terminal; a dense one folds what is too wide."""
        from rich.box import SIMPLE
        from rich.table import Table as RichTable

        table = RichTable(
            box=SIMPLE,
            title=self.caption or None,
            title_justify="left",
            show_header=any(self.columns),
            padding=(0, 0, 0, 1) if dense else (0, 1),
        )
        for title, kind in zip(self.columns, self.kinds, strict=True):
            justify: Any = "left" if kind == "l" else "right"
            table.add_column(title, justify=justify, overflow="fold" if dense else "ellipsis")
        for row in self.texts():
            table.add_row(*row)
        return table

    def markdown(self, aligned: bool = False) -> list[str]:
        """Lines of Markdown; aligned columns also read well on a terminal."""
        lines = [[words.replace("|", "\\|") for words in row] for row in (self.columns, *self.texts())]
        rule = ["---" if kind == "l" else "---:" for kind in self.kinds]
        if aligned:
            widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(self.columns))]
            lines = [
                [
                    words.ljust(width) if kind == "l" else words.rjust(width)
                    for words, width, kind in zip(line, widths, self.kinds, strict=True)
                ]
                for line in lines
            ]
            rule = [
                "-" * (width + 2) if kind == "l" else "-" * (width + 1) + ":"
                for width, kind in zip(widths, self.kinds, strict=True)
            ]
        head, *body = (f"| {' | '.join(line)} |" for line in lines)
        return [head, f"|{'|'.join(rule)}|", *body]

    def csv(self) -> str:
        """Values with all their digits; the deviation of a measure has its own column."""
        titles = [
            name
            for title, kind in zip(self.csv_columns or self.columns, self.kinds, strict=True)
            for name in ([title, f"{title} deviation"] if kind == "s" else [title])
        ]
        rows = [
            [
                value
                for cell, kind in zip(row, self.kinds, strict=True)
                for value in ([cell.value, cell.deviation] if kind == "s" else [cell.value])
            ]
            for row in self.rows
        ]
        return csv_text([titles, *rows])

    def latex(self) -> str:
        """A `tabular` with rules of the package booktabs, for a `table` of the author's own."""
        lines = [
            f"% {' '.join(self.caption.split())}",
            "% needs \\usepackage{booktabs}",
            f"\\begin{{tabular}}{{{self.kinds.replace('s', 'r')}}}",
            "\\toprule",
            _latex_line(self.columns),
            "\\midrule",
            *map(_latex_line, self.texts()),
            "\\bottomrule",
            "\\end{tabular}",
        ]
        return "\n".join(lines) + "\n"


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


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
    """Text that LaTeX prints as it is.

    >>> print(latex_escaped("prol_plus:a=50% & more"))
    prol\\_plus:a=50\\% \\& more
    """
    return "".join(_LATEX.get(character, character) for character in text)


def _latex_line(texts: Iterable[str]) -> str:
    return " & ".join(map(latex_escaped, texts)) + r" \\"
