"""An audit as tables and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE
from rich.console import Group, RenderableType
from rich.table import Table

_MOST_NAMED = 20


def audit_tables(audit: Mapping[str, Any]) -> Group:
    """What is kept, the search for single images, the files, and what all of it says."""
    parts: list[RenderableType] = [
        f"{audit['method']} on {audit['backbone']}, {audit['classes']:,} classes",
        _tensors(audit["tensors"]),
        _searches(audit["probe"]),
        _files(audit["files"]),
    ]
    if audit["few"]:
        named = [f"{_plain(one['label'])} ({one['count']})" for one in audit["few"][:_MOST_NAMED]]
        more = len(audit["few"]) - len(named)
        parts.append(f"Classes of few images: {', '.join(named)}{f' and {more:,} more' if more > 0 else ''}")
    return Group(*parts, *(f"- {sentence}" for sentence in audit["findings"]))


def _tensors(tensors: list[Mapping[str, Any]]) -> Table:
    table = _table("tensor", "kind", "shape", "bytes", "grows with")
    for one in tensors:
        shape = " x ".join(str(length) for length in one["shape"]) or "a number"
        table.add_row(one["name"], one["kind"], shape, f"{one['bytes']:,}", _GROWTH[one["grows_with"]])
    return table


_GROWTH = {
    "stays": "nothing",
    "classes": "classes",
    "rows in play": "rows in play, as many as its table has at most",
    "once": "nothing; came once, after enough images",
    "samples": "SAMPLES",
    "not met": "not met with the images of the audit",
}


def _searches(probe: Mapping[str, Mapping[str, Any]]) -> Table:
    table = _table("nearest stored row to", "the only image of a class", "one of several", "one never learnt", "in")
    for name, words in (
        ("features", "its feature"),
        ("pixels", "its pixels"),
        ("own_rows", "the row that it writes by itself"),
    ):
        found = probe[name]
        cosines = [_cosine(found[group]) for group in ("once", "several", "never")]
        table.add_row(words, *cosines, found["tensor"] or "no tensor of that width")
    return table


def _files(files: list[Mapping[str, Any]]) -> Table:
    table = _table("file", "bytes", "holds")
    for one in files:
        table.add_row(_plain(one["name"]), f"{one['bytes']:,}", one["holds"])
    return table


def _table(*titles: str) -> Table:
    table = Table(box=SIMPLE)
    for title in titles:
        table.add_column(title, justify="right" if title == "bytes" else "left")
    return table


def _cosine(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _plain(text: Any) -> str:
    return "".join(sign for sign in str(text) if sign.isprintable())
