"""The one table of a comparison, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE
from rich.table import Table

from prol.report.comparison import Row, Spread

_BESIDE = "*"


def comparison_table(rows: Sequence[Row]) -> Table:
    """One row a method, on two lines: means and counts above, deviations and bytes below."""
    table = Table(box=SIMPLE, padding=(0, 0, 0, 1))
    titles = _titles(rows, "\n")
    for title in titles:
        table.add_column(title, justify="left" if title in (titles[0], titles[-1]) else "right", overflow="fold")
    for row in rows:
        method, _, options = row.name.partition(":")
        table.add_row(
            "\n".join(filter(None, (method, options.replace(",", " "), _missing_seeds(row, rows)))),
            *(_spread(spread, "\n±") for spread in _measures(row, rows)),
            _speed(row),
            *(_amount(row.footprint[kind], "\n{}") for kind in _STORED),
            _samples(row.footprint["samples_stored"], "\n{}"),
            readable(row.bytes_kept, "B"),
            _told(row, ",\n"),
        )
    return table


def comparison_markdown(headline: str, rows: Sequence[Row], failures: Sequence[str]) -> str:
    """The same as a page of its own, with what could not be finished."""
    titles = _titles(rows, " ")
    titles.insert(1, "seeds")
    lines = [f"# Comparison on {headline.partition(':')[0]}", "", f"{headline}.", ""]
    lines += [f"| {' | '.join(titles)} |", f"|{'|'.join(['---', *['---:'] * (len(titles) - 2), '---'])}|"]
    for row in rows:
        cells = [
            f"`{row.name}`",
            ", ".join(map(str, row.seeds)),
            *(_spread(spread, " ± ") for spread in _measures(row, rows)),
            _speed(row),
            *(_amount(row.footprint[kind], " ({})") for kind in _STORED),
            _samples(row.footprint["samples_stored"], " ({})"),
            readable(row.bytes_kept, "B"),
            _told(row, ", "),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *notes(rows)]
    if failures:
        lines += ["", "## Not finished", "", *(f"- {failure}" for failure in failures)]
    return "\n".join(lines) + "\n"


def notes(rows: Sequence[Row]) -> list[str]:
    """What must be known to read the table."""
    said = [
        "Accuracies and forgetting in %, as mean ± sample deviation over seeds. Amounts are those during the last "
        "task, besides the frozen backbone and the optimiser's moments; bytes kept are those of parameters, statistics "
        "and samples together."
    ]
    if any(row.side_by_side for row in rows):
        said.append(f"{_BESIDE} Other runs were at work at the same time: alone it is faster.")
    return said


def readable(number: int, unit: str = "") -> str:
    """Three digits and a size.

    >>> readable(940), readable(153_800), readable(999_999), readable(7_833_800, "B")
    ('940', '154 k', '1 M', '7.83 MB')
    """
    value, sizes = float(number), ["", "k", "M", "G", "T"]
    while value >= 999.5 and len(sizes) > 1:
        value, sizes = value / 1000, sizes[1:]
    return f"{value:.3g} {sizes[0]}{unit}".strip()


_STORED = ("trained_now", "parameters_stored", "statistics_stored")


def _titles(rows: Sequence[Row], gap: str) -> list[str]:
    measures = ["FAA", "CAA", "forgetting"] + ["A_AUC"] * any(row.a_auc for row in rows)
    amounts = [f"{kind}{gap}stored" for kind in ("parameters", "statistics")]
    kept = [f"{kind}{gap}kept" for kind in ("samples", "bytes")]
    return ["method", *measures, f"images/s{gap}learning", f"trained{gap}now", *amounts, *kept, "told"]


def _measures(row: Row, rows: Sequence[Row]) -> list[Spread | None]:
    return [row.faa, row.caa, row.forgetting] + [row.a_auc] * any(one.a_auc for one in rows)


def _missing_seeds(row: Row, rows: Sequence[Row]) -> str:
    """Which seeds a row stands on, where others stand on more."""
    everything = {seed for one in rows for seed in one.seeds}
    if everything == set(row.seeds):
        return ""
    return f"({'seeds' if len(row.seeds) > 1 else 'seed'} {', '.join(map(str, row.seeds))} only)"


def _spread(spread: Spread | None, gap: str) -> str:
    if spread is None:
        return "-"
    return f"{spread.mean:.2f}" if spread.deviation is None else f"{spread.mean:.2f}{gap}{spread.deviation:.2f}"


def _speed(row: Row) -> str:
    if row.images_per_second is None:
        return "-"
    digits = 0 if row.images_per_second >= 10 else 1
    return f"{row.images_per_second:,.{digits}f}{_BESIDE if row.side_by_side else ''}"


def _amount(amount: Mapping[str, int], size: str) -> str:
    if not amount["count"] and not amount["bytes"]:
        return "0"
    return readable(amount["count"]) + size.format(readable(amount["bytes"], "B"))


def _samples(amount: Mapping[str, int], size: str) -> str:
    return "none" if not amount["count"] and not amount["bytes"] else _amount(amount, size)


def _told(row: Row, gap: str) -> str:
    said = ["boundaries"] * row.told_boundaries + ["classes"] * row.told_classes
    return gap.join(said) or "nothing"
