"""Our numbers beside printed ones: what a reproduction's `table.json` holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prol.report.comparison import Spread

Figure = Literal["lines", "bars", "fit"]


@dataclass(frozen=True)
class Pair:
    """One cell: ours over seeds, the printed number, and what is wrong with that one, where something is known."""

    ours: Spread | None = None
    paper: float | None = None
    slip: str | None = None

    @property
    def difference(self) -> float | None:
        return None if self.ours is None or self.paper is None else self.ours.mean - self.paper


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
        centre, level = sum(x) / len(x), sum(y) / len(y)
        width = sum((one - centre) ** 2 for one in x)
        slope = sum((one - centre) * (other - level) for one, other in zip(x, y, strict=True)) / width
        intercept = level - slope * centre
        missed = sum((other - slope * one - intercept) ** 2 for one, other in zip(x, y, strict=True))
        spread = sum((other - level) ** 2 for other in y)
        return cls(slope, intercept, 1.0 - missed / spread if spread > 0 else 1.0)


@dataclass(frozen=True)
class SheetRow:
    """One row: a pair a column, the seeds behind it, and a remark such as "not run: why"."""

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
        label: of the paper's table that stands beside it; empty where there is none.
        columns: their titles.
        x: the columns as numbers, for a figure of lines; empty otherwise.
        digits: behind the point, in all columns or in each.
        fit: what the slope and the intercept of the rows' fits are in words.
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

    def columns_digits(self) -> tuple[int, ...]:
        return self.digits if isinstance(self.digits, tuple) else (self.digits,) * len(self.columns)


@dataclass(frozen=True)
class Sheet:
    """Everything an item comes to; `settings` are triples of what, here, and in the paper."""

    item: str
    about: str
    settings: tuple[tuple[str, str, str], ...]
    tables: tuple[SheetTable, ...]
