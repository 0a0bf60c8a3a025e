"""An audit as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType

from prol.report.table import Table, printable
from prol.runfiles import Content

_MOST_NAMED = 20
_GROWTH = {
    "stays": "nothing",
    "classes": "classes",
    "rows in play": "rows in play, as many as its table has at most",
    "once": "nothing; came once, after enough images",
    "samples": "SAMPLES",
    "not met": "not met with the images of the audit",
}
_SEARCHES = {"features": "its feature", "pixels": "its pixels", "own_rows": "the row that it writes by itself"}


def audit_tables(audit: Content, everything: bool = True) -> Group:
    """The findings, then, unless these are enough, what is stored, the search for single images, and the files."""
    parts: list[RenderableType] = [f"{audit['method']} on {audit['backbone']}, {audit['classes']:,} classes"]
    parts += [f"- {sentence}" for sentence in audit["findings"]]
    if audit["few"]:
        named = [f"{printable(one['label'])} ({one['count']})" for one in audit["few"][:_MOST_NAMED]]
        more = len(audit["few"]) - len(named)
        parts.append(f"Classes of few images: {', '.join(named)}{f' and {more:,} more' if more > 0 else ''}")
    if everything:
        tables = [_tensors(audit["tensors"]), _searches(audit["probe"]), _files(audit["files"])]
        return Group(*parts, *(table.rich() for table in tables))
    tensors, files = audit["tensors"], audit["files"]
    size = sum(one["bytes"] for one in tensors)
    return Group(*parts, f"{len(tensors):,} tensors of {size:,} bytes, {len(files):,} files: --all lists them")


def _tensors(tensors: Sequence[Content]) -> Table:
    rows = [
        [
            one["name"],
            one["kind"],
            " x ".join(map(str, one["shape"])) or "a number",
            f"{one['bytes']:,}",
            _GROWTH[one["grows_with"]],
        ]
        for one in tensors
    ]
    return Table.of(("tensor", "kind", "shape", "bytes", "grows with"), rows, "lllrl")


def _searches(probe: Mapping[str, Content]) -> Table:
    rows = []
    for name, meaning in _SEARCHES.items():
        found = probe[name]
        cosines = ["" if found[group] is None else f"{found[group]:.4f}" for group in ("once", "several", "never")]
        rows.append([meaning, *cosines, found["tensor"] or "no tensor of that width"])
    titles = ("nearest stored row to", "the only image of a class", "one of several", "one never learnt", "in")
    return Table.of(titles, rows, "lllll")


def _files(files: Sequence[Content]) -> Table:
    rows = [[printable(one["name"]), f"{one['bytes']:,}", one["holds"]] for one in files]
    return Table.of(("file", "bytes", "holds"), rows, "lrl")
