"""Class means of features as running sums, and means completed where a feature space came after the class."""

from __future__ import annotations

import torch
from torch import Tensor

from prol.engine.similarity import classmates, cosine_to_all
from prol.state import State
from prol.tables import Table


def complete(means: Tensor, measured: Tensor, own: Tensor) -> Tensor:
    """Class means in every feature space, `[T, C, D]`, with those never `measured` (bool `[T, C]`) estimated.

    A class c without a mean in space t gets sum_n w_n means[t, n] over the classes n that have one there, with
    w = softmax_n cos(means[s, c], means[s, n]) in the class's own space s = own[c]; `own` is `[C]`.
    """
    completed = means.clone()
    for space in range(len(means)):
        known = measured[space]
        for home in torch.unique(own).tolist():
            missing, others = (own == home) & measured[home] & ~known, known & measured[home]
            if bool(missing.any()) and bool(others.any()):
                alike = cosine_to_all(means[home, missing], means[home, others])
                completed[space, missing] = alike.softmax(1) @ means[space, others]
    return completed


class Prototypes:
    """The sum of features and a count for each class."""

    def __init__(self, state: State, width: int) -> None:
        # Sums in float64, so that a long stream does not round a class's late samples away.
        self.sums = state.table("sums", width, dtype=torch.float64, kind="statistic")
        self.counts = state.table("counts", dtype=torch.float64, kind="statistic")

    def add(self, features: Tensor, rows: Tensor, valid: Tensor | None = None) -> None:
        """Features `[B, D]` of samples of class rows `[B]`; none of them where `valid`, a bool scalar, is false."""
        mates, first = classmates(rows)
        where = first if valid is None else first & valid
        self.sums.add_where(rows, mates @ features.double(), where)
        self.counts.add_where(rows, mates.sum(1), where)

    def means(self) -> Tensor:
        """`[C, D]`; zero for a class without samples."""
        return self.sums.rows / self.counts.rows.clamp(min=1).unsqueeze(1)

    def measured(self) -> Tensor:
        """Which classes have had a sample, bool `[C]`."""
        return self.counts.rows > 0

    def tables(self) -> dict[str, Table]:
        return {"sums": self.sums, "counts": self.counts}
