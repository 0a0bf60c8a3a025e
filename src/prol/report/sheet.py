"""Our numbers beside printed ones: the content of a reproduction's `table.json`, as Markdown and as CSV.

The Markdown's columns are aligned, so that it also reads well on a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import correlation, linear_regression
from typing import Literal

from prol.report.table import NOT_KNOWN, Spread, Table, csv_text

_MOST_SIDE_BY_SIDE = 4
"""Columns up to which ours, the paper's and the difference are beside each other; else one below the other."""
_SLIP = "†"

Figure = Literal["lines", "bars", "fit"]


@dataclass(frozen=True)
class Pair:
    """One cell: ours over seeds, the printed number, and the known error of that number, if any."""

    ours: Spread | None = None
    paper: float | None = None
    slip: str | None = None

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper

    def texts(self, digits: int) -> list[str]:
        """Ours, the paper's and the difference."""
        paper = NOT_KNOWN if self.paper is None else f"{self.paper:.{digits}f}{_SLIP if self.slip else ''}"
        difference = NOT_KNOWN if self.difference is None else f"{self.difference:+.{digits}f}"
        return [NOT_KNOWN if self.ours is None else self.ours.text(digits), paper, difference]


@dataclass(frozen=True)
class Fit:
    """A straight line through points: value = slope x + intercept, and the share of variance it explains."""

    slope: float
    intercept: float
    r_squared: float

    @classmethod
    def through(cls, x: Sequence[float], y: Sequence[float]) -> Fit | None:
        """Least squares; None where fewer than two places are given.

        >>> Fit.through([1, 2, 3], [3.0, 5.0, 7.0])
        Fit(slope=2.0, intercept=1.0, r_squared=1.0)
        """
        if len(set(x)) < 2:
            return None
        slope, intercept = linear_regression(x, y)
        return cls(slope, intercept, correlation(x, y) ** 2 if len(set(y)) > 1 else 1.0)


@dataclass(frozen=True)
class SheetRow:
    """One row: a pair per column, the seeds behind it, and a remark such as "not run: why"."""

    name: str
    pairs: tuple[Pair, ...]
    seeds: tuple[int, ...] = ()
    remark: str = ""
    fit: Fit | None = None


@dataclass(frozen=True)
class SheetTable:
    """One table of an item.

    Args:
        name: of its figure's file.
        label: of the paper's table beside it; empty where there is none.
        columns: their titles.
        x: the columns as numbers, for a figure of lines; empty otherwise.
        digits: after the decimal point, in all columns or in each.
        fit: the unit of the slope of the rows' fits; empty without fits.
    """

    name: str
    title: str
    label: str
    columns: tuple[str, ...]
    rows: tuple[SheetRow, ...]
    row_title: str = "method"
    digits: int | tuple[int, ...] = 2
    figure: Figure | None = None
    x: tuple[float, ...] = ()
    x_title: str = ""
    y_title: str = ""
    fit: str = ""
    notes: tuple[str, ...] = ()

    @property
    def has_paper(self) -> bool:
        return any(pair.paper is not None for row in self.rows for pair in row.pairs)

    def texts(self, row: SheetRow) -> list[list[str]]:
        """Ours, the paper's and the difference, for each column."""
        digits = self.digits if isinstance(self.digits, tuple) else (self.digits,) * len(self.columns)
        return [pair.texts(places) for pair, places in zip(row.pairs, digits, strict=True)]


@dataclass(frozen=True)
class Sheet:
    """All tables of an item; `settings` are triples of what, here, and in the paper."""

    item: str
    about: str
    settings: tuple[tuple[str, str, str], ...]
    tables: tuple[SheetTable, ...]


def sheet_markdown(sheet: Sheet, figures: Sequence[str] = ()) -> str:
    """The item as a page: what differs from the paper, then its tables, then its figures by their file names."""
    lines = [f"# {sheet.item}: {sheet.about}", "", *_settings(sheet)]
    for table in sheet.tables:
        lines += ["", f"## {table.title}", ""]
        if table.label:
            lines += [f"The paper's numbers: `{table.label}`.", ""]
        lines += _aligned(_stacked(table) if len(table.columns) > _MOST_SIDE_BY_SIDE else _side_by_side(table))
        pairs = [(row, *pair) for row in table.rows for pair in zip(table.columns, row.pairs, strict=True)]
        slips = [
            f"{_SLIP} {row.name}, {title}: a slip of the paper; {pair.slip}." for row, title, pair in pairs if pair.slip
        ]
        notes = [*slips, *table.notes]
        lines += ["", *(f"- {note}" for note in notes)] if notes else []
    if figures:
        lines += ["", *(f"![{name}]({name})" for name in figures)]
    return "\n".join(lines) + "\n"


def sheet_csv(sheet: Sheet) -> str:
    """One line per cell."""
    titles = ["table", "label", "row", "column", "mean", "deviation", "values", "paper", "difference", "slip", "remark"]
    rows = [
        [
            *(table.name, table.label, row.name, column),
            *((pair.ours.mean, pair.ours.deviation, " ".join(map(str, pair.ours.values))) if pair.ours else ("",) * 3),
            *(pair.paper, pair.difference, pair.slip, row.remark),
        ]
        for table in sheet.tables
        for row in table.rows
        for column, pair in zip(table.columns, row.pairs, strict=True)
    ]
    return csv_text([titles, *rows])


def _settings(sheet: Sheet) -> list[str]:
    if not sheet.settings:
        return ["Nothing was run."]
    rows = [[what, here, paper] for what, here, paper in sheet.settings]
    table = _aligned([["", "here", "the paper"], *rows], texts=True)
    return ["What differs from the paper:", "", *table]


def _side_by_side(table: SheetTable) -> list[list[str]]:
    beside = ["paper", "difference"] if table.has_paper else []
    head = [table.row_title, *(title for column in table.columns for title in (column, *beside))]
    shown = 1 + len(beside)
    rows = [
        [row.name, *(text for texts in table.texts(row) for text in texts[:shown]), *_ending(table, row)]
        for row in table.rows
    ]
    return [[*head, *_ending_titles(table)], *rows]


def _stacked(table: SheetTable) -> list[list[str]]:
    kinds = ["ours", "paper", "difference"] if table.has_paper else ["ours"]
    lines = [[table.row_title, "", *table.columns, *_ending_titles(table)]]
    for row in table.rows:
        texts = table.texts(row)
        for number, kind in enumerate(kinds):
            if kind != "ours" and all(text[number] == NOT_KNOWN for text in texts):
                continue
            ending = _ending(table, row) if number == 0 else [""] * len(_ending_titles(table))
            lines.append([row.name if number == 0 else "", kind, *(text[number] for text in texts), *ending])
    return lines


def _ending_titles(table: SheetTable) -> list[str]:
    fits = [table.fit, "at 0", "R²"] if table.fit else []
    return fits + (["remark"] if any(row.remark for row in table.rows) else [])


def _ending(table: SheetTable, row: SheetRow) -> list[str]:
    fits: list[str] = []
    if table.fit:
        fit = row.fit
        fits = [NOT_KNOWN] * 3 if fit is None else [f"{fit.slope:.3g}", f"{fit.intercept:.3g}", f"{fit.r_squared:.4f}"]
    return fits + ([row.remark] if any(one.remark for one in table.rows) else [])


def _aligned(cells: list[list[str]], texts: bool = False) -> list[str]:
    """Lines of Markdown from cells, titles first; columns with numbers are aligned right unless all are texts."""
    head, *rows = cells
    columns = range(len(head))
    kinds = ["l" if texts or not any(re.match(r"[+-]?\d", row[column]) for row in rows) else "r" for column in columns]
    return Table.of(head, rows, "".join(kinds)).markdown(aligned=True)
