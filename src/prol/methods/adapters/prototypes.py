"""Class means of features as running sums, and means made up where a feature space came after the class."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from prol.engine.similarity import cosine_to_all
from prol.parts.rows import RowTable


def complete(means: Tensor, measured: Tensor, own: Tensor) -> Tensor:
    """Class means in every feature space, `[T, C, D]`, with those never `measured` (bool `[T, C]`) made up.

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

    def __init__(self, width: int, device: torch.device) -> None:
        self.width = width
        # Sums in float64, so that a long stream does not round a class's late samples away.
        self.sums = RowTable((width,), device, torch.float64)
        self.counts = RowTable((), device, torch.float64)

    def append(self, classes: int) -> None:
        self.sums.append(torch.zeros(classes, self.width))
        self.counts.append(torch.zeros(classes))

    def add(self, features: Tensor, rows: Tensor, valid: Tensor | None = None) -> None:
        """Features `[B, D]` of samples of class rows `[B]`; none of them where `valid`, a bool scalar, is false."""
        mates, first = classmates(rows)
        counts = first if valid is None else first & valid
        self.sums.add(rows, mates @ features.double(), counts)
        self.counts.add(rows, mates.sum(1), counts)

    def means(self) -> Tensor:
        """`[C, D]`; zero for a class without samples."""
        return self.sums.rows / self.counts.rows.clamp(min=1).unsqueeze(1)

    def measured(self) -> Tensor:
        """Which classes have had a sample, bool `[C]`."""
        return self.counts.rows > 0

    def tables(self) -> dict[str, RowTable]:
        return {"sums": self.sums, "counts": self.counts}

    def tensors(self) -> dict[str, Tensor]:
        return {name: table.rows for name, table in self.tables().items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, table in self.tables().items():
            table.replace(tensors[name])
