"""A reproduction as Markdown, whose columns are aligned so that it also reads on a terminal, and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from prol.report.comparison import Spread
from prol.report.sheet import Pair, Sheet, SheetRow, SheetTable

_MOST_SIDE_BY_SIDE = 4
"""Columns up to which ours, the paper's and the difference stand beside each other; else one below the other."""
_SLIP = "†"
_NOTHING = "-"


def sheet_markdown(sheet: Sheet, figures: Sequence[str] = ()) -> str:
    """The item as a page: what differs from the paper, then its tables, then its figures by their file names."""
    lines = [f"# {sheet.item}: {sheet.about}", "", *_settings(sheet)]
    for table in sheet.tables:
        lines += ["", f"## {table.title}", ""]
        if table.label:
            lines += [f"The paper's numbers: `{table.label}`.", ""]
        lines += _aligned(_stacked(table) if len(table.columns) > _MOST_SIDE_BY_SIDE else _side_by_side(table))
        notes = [*_slips(table), *table.notes]
        lines += ["", *(f"- {note}" for note in notes)] if notes else []
    if figures:
        lines += ["", *(f"![{name}]({name})" for name in figures)]
    return "\n".join(lines) + "\n"


def sheet_csv(sheet: Sheet) -> str:
    """One line a cell."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        ["table", "label", "row", "column", "mean", "deviation", "values", "paper", "difference", "slip", "remark"]
    )
    for table in sheet.tables:
        for row in table.rows:
            for column, pair in zip(table.columns, row.pairs, strict=True):
                ours = pair.ours
                writer.writerow(
                    [table.name, table.label, row.name, column]
                    + ([ours.mean, ours.deviation, " ".join(map(str, ours.values))] if ours else ["", "", ""])
                    + [pair.paper, pair.difference, pair.slip, row.remark]
                )
    return file.getvalue()


def _settings(sheet: Sheet) -> list[str]:
    if not sheet.settings:
        return ["Nothing was run."]
    rows = [[what, here, paper] for what, here, paper in sheet.settings]
    table = _aligned([["", "here", "the paper"], *rows], texts=True)
    return ["What differs from the paper:", "", *table]


def _has_paper(table: SheetTable) -> bool:
    return any(pair.paper is not None for row in table.rows for pair in row.pairs)


def _side_by_side(table: SheetTable) -> list[list[str]]:
    beside = ["paper", "difference"] if _has_paper(table) else []
    head = [table.row_title, *(title for column in table.columns for title in (column, *beside))]
    shown = 1 + len(beside)
    rows = [
        [row.name, *(text for texts in _row_texts(table, row) for text in texts[:shown]), *_ending(table, row)]
        for row in table.rows
    ]
    return [[*head, *_ending_titles(table)], *rows]


def _stacked(table: SheetTable) -> list[list[str]]:
    kinds = ["ours", "paper", "difference"] if _has_paper(table) else ["ours"]
    lines = [[table.row_title, "", *table.columns, *_ending_titles(table)]]
    for row in table.rows:
        texts = _row_texts(table, row)
        for number, kind in enumerate(kinds):
            if kind != "ours" and all(text[number] == _NOTHING for text in texts):
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
        fits = [_NOTHING] * 3 if fit is None else [f"{fit.slope:.3g}", f"{fit.intercept:.3g}", f"{fit.r_squared:.4f}"]
    return fits + ([row.remark] if any(one.remark for one in table.rows) else [])


def _row_texts(table: SheetTable, row: SheetRow) -> list[list[str]]:
    """Ours, the paper's and the difference, for each column."""
    return [_texts(pair, digits) for pair, digits in zip(row.pairs, table.columns_digits(), strict=True)]


def _texts(pair: Pair, digits: int) -> list[str]:
    paper = _NOTHING if pair.paper is None else f"{pair.paper:.{digits}f}{_SLIP if pair.slip else ''}"
    difference = _NOTHING if pair.difference is None else f"{pair.difference:+.{digits}f}"
    return [_spread(pair.ours, digits), paper, difference]


def _spread(spread: Spread | None, digits: int) -> str:
    if spread is None:
        return _NOTHING
    mean = f"{spread.mean:.{digits}f}"
    return mean if spread.deviation is None else f"{mean} ± {spread.deviation:.{digits}f}"


def _slips(table: SheetTable) -> list[str]:
    return [
        f"{_SLIP} {row.name}, {column}: a slip of the paper; {pair.slip}."
        for row in table.rows
        for column, pair in zip(table.columns, row.pairs, strict=True)
        if pair.slip
    ]


def _aligned(cells: list[list[str]], texts: bool = False) -> list[str]:
    """Markdown rows from cells, the first row being titles; columns with numbers stand right unless all are texts."""
    cells = [[text.replace("|", "\\|") for text in row] for row in cells]
    widths = [max(3, *(len(row[column]) for row in cells)) for column in range(len(cells[0]))]
    left = [texts or all(not _numeric(row[column]) for row in cells[1:]) for column in range(len(widths))]

    def line(row: list[str]) -> str:
        padded = (
            text.ljust(width) if flush else text.rjust(width)
            for text, width, flush in zip(row, widths, left, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = "|".join(
        "-" * (width + 2) if flush else "-" * (width + 1) + ":" for width, flush in zip(widths, left, strict=True)
    )
    return [line(cells[0]), f"|{rule}|", *(line(row) for row in cells[1:])]


def _numeric(text: str) -> bool:
    return text[:1].isdigit() or (text[:1] in "+-" and text[1:2].isdigit())
