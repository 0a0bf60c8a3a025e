"""What the paper prints, table by table, with its known errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

DATASETS = ("cifar100", "imagenet_r", "imagenet_a", "cub200")
MEASURES = ("FAA", "CAA", "FM")
PER_TASK = (*(str(task) for task in range(1, 11)), "AVG")
"""The columns of tables that name none."""


@dataclass(frozen=True)
class Printed:
    """One number of the paper; `slip` describes its error, if it is known to have one."""

    value: float
    slip: str | None = None


@dataclass(frozen=True)
class PrintedTable:
    """A table as printed: its label in the paper's source, and numbers by row and column; None where it has a dash."""

    label: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]
    slips: Mapping[tuple[str, str], str]

    def find(self, row: str | None, column: str) -> Printed | None:
        """The number there; None where the paper has no such row or column, or a dash."""
        if row is None or row not in self.rows or column not in self.columns:
            return None
        value = self.rows[row][self.columns.index(column)]
        return None if value is None else Printed(value, self.slips.get((row, column)))


@cache
def printed_tables() -> dict[str, Any]:
    """The content of `printed.json`, by the names of tables."""
    content: dict[str, Any] = json.loads((files("prol.paper") / "printed.json").read_text(encoding="utf-8"))
    return content


@cache
def read_printed(name: str) -> PrintedTable:
    """A table by its name.

    >>> read_printed("main").find("PROL", "cifar100 FAA")
    Printed(value=86.32, slip=None)
    """
    content = printed_tables()[name]
    return PrintedTable(
        label=content["label"],
        columns=tuple(content.get("columns", PER_TASK)),
        rows={row: tuple(values) for row, values in content["rows"].items()},
        slips={(slip["row"], slip["column"]): slip["note"] for slip in content.get("slips", [])},
    )
