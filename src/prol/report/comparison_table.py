"""The table of a comparison, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table as RichTable

from prol.report.comparison import Row, paired_difference
from prol.report.table import Cell, Table, readable, spread, text

BESIDE = "*"
RAN_BESIDE = f"{BESIDE} Other runs were running at the same time: alone it is faster."


def comparison_table(rows: Sequence[Row]) -> RichTable:
    """One row per method, on two lines: means and counts above, deviations and bytes below."""
    cells = []
    for row in rows:
        method, _, options = row.name.partition(":")
        name = "\n".join(filter(None, (method, options.replace(",", " "), _missing_seeds(row, rows))))
        cells.append([text(name), *_cells(row, rows, "\n±", "\n{}", ",\n")])
    return _table(_titles(rows, "\n"), cells).rich(dense=True)


def comparison_sheet(rows: Sequence[Row], mark: str = "") -> Table:
    """The same with one line for each method and its seeds in a column; `mark` is put around names."""
    method, *titles = _titles(rows, " ")
    cells = [
        [
            text(f"{mark}{row.name}{mark}"),
            text(", ".join(map(str, row.seeds))),
            *_cells(row, rows, " ± ", " ({})", ", "),
        ]
        for row in rows
    ]
    return _table([method, "seeds", *titles], cells)


def comparison_markdown(headline: str, rows: Sequence[Row], failures: Sequence[str]) -> str:
    """The table as a page, with the runs that are not finished."""
    lines = [f"# Comparison on {headline.partition(':')[0]}", "", f"{headline}.", ""]
    lines += [*comparison_sheet(rows, "`").markdown(), "", *notes(rows)]
    if failures:
        lines += ["", "## Not finished", "", *(f"- {failure}" for failure in failures)]
    return "\n".join(lines) + "\n"


def notes(rows: Sequence[Row]) -> list[str]:
    """What must be known to read the table."""
    notes = [
        "Accuracies and forgetting in %, as mean ± sample deviation over seeds. Amounts are those during the last "
        "task, besides the frozen backbone and the optimiser's moments; bytes stored are those of parameters, "
        "statistics and samples together."
    ]
    if len(rows) > 1 and (paired := paired_difference(*rows[:2])) is not None:
        mean, half, count = paired
        notes.append(
            f"Paired by seed, FAA of {rows[0].name} is {mean:.2f} points above that of {rows[1].name}, 95 % interval "
            f"{mean - half:.2f} to {mean + half:.2f} ({count} seeds). A seed varies the order of the samples, initial "
            "values and augmentation; training and test images are the same for all seeds."
        )
    return notes + [RAN_BESIDE] * any(row.side_by_side for row in rows)


def speed(row: Row) -> Cell:
    """Images per second while learning, with a star where other runs were running beside it."""
    value = row.images_per_second
    if value is None:
        return Cell("-")
    return Cell(f"{value:,.{0 if value >= 10 else 1}f}{BESIDE if row.side_by_side else ''}", value)


def _table(titles: Sequence[str], cells: Sequence[Sequence[Cell]]) -> Table:
    return Table(titles, cells, "l" + "r" * (len(titles) - 2) + "l")


def _titles(rows: Sequence[Row], gap: str) -> list[str]:
    measures = ["FAA", "CAA", "forgetting"] + ["A_AUC"] * any(row.a_auc for row in rows)
    stored = [f"{kind}{gap}stored" for kind in ("parameters", "statistics", "samples", "bytes")]
    return ["method", *measures, f"images/s{gap}learning", f"trained{gap}now", *stored, "given"]


def _cells(row: Row, rows: Sequence[Row], gap: str, size: str, comma: str) -> list[Cell]:
    measures = [row.faa, row.caa, row.forgetting] + [row.a_auc] * any(one.a_auc for one in rows)
    kinds = ("trained_now", "parameters_stored", "statistics_stored", "samples_stored")
    given = ["boundaries"] * row.told_boundaries + ["classes"] * row.told_classes
    return [
        *(spread(measure, gap) for measure in measures),
        speed(row),
        *(text(_amount(row.footprint[kind], size, "none" if kind == "samples_stored" else "0")) for kind in kinds),
        text(readable(row.bytes_kept, "B")),
        text(comma.join(given) or "nothing"),
    ]


def _missing_seeds(row: Row, rows: Sequence[Row]) -> str:
    """The seeds of a row where others have more."""
    everything = {seed for one in rows for seed in one.seeds}
    if everything == set(row.seeds):
        return ""
    return f"({'seeds' if len(row.seeds) > 1 else 'seed'} {', '.join(map(str, row.seeds))} only)"


def _amount(amount: Mapping[str, int], size: str, none: str) -> str:
    if not amount["count"] and not amount["bytes"]:
        return none
    return readable(amount["count"]) + size.format(readable(amount["bytes"], "B"))
