"""What is stored of each class's features: sums for its mean, or a Gaussian, from which a head is trained again."""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.classes import Tensors
from prol.engine.sgd import MOMENTUM
from prol.engine.similarity import classmates
from prol.state import State
from prol.tables import Table

Covariance = Literal["full", "diagonal"]

RIDGE = 1e-4
"""Added to every variance, so that a class of one sample has a Gaussian too."""
DECAY = 5e-4
"""Weight decay of the head while it is aligned."""


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


class ClassGaussians:
    """Count `[C]`, mean `[C, D]` and scatter, the summed squares (or products) of deviations `[C, D]` (`[C, D, D]`)."""

    def __init__(self, state: State, width: int, covariance: Covariance, dtype: torch.dtype) -> None:
        self.width, self.covariance, self._prefix = width, covariance, state.prefix
        full = covariance == "full"
        declare = partial(state.table, kind="statistic", combine="keep")
        self.counts = declare("counts", dtype=torch.float64)
        self.means = declare("means", width, dtype=torch.float64)
        # A full scatter is by far the largest thing stored, so it has the network's own type.
        self.scatter = declare("scatter", (width,) * (1 + full), dtype=dtype if full else torch.float64)
        state.on_combine(self._combine_classes)

    def add(self, features: Tensor, rows: Tensor, valid: Tensor | None = None) -> None:
        """Adds features `[B, D]` of class rows `[B]`; chunks are merged by their own moments, in any order.

        With n, m of a class and n', m' of its samples in the chunk, the scatter grows by the chunk's own and by
        n n' / (n + n') times the square of m' - m. Nothing changes where `valid`, a bool scalar, is false.
        """
        features = features.double()
        mates, first = classmates(rows)
        more = mates.sum(1)
        chunk_means = mates @ features / more.unsqueeze(1)  # each sample's own class, as all that follows
        deviations = features - chunk_means
        before, shift = self.counts.rows[rows], chunk_means - self.means.rows[rows]
        total = before + more
        weight = before * more / total
        if self.covariance == "diagonal":
            scatter = mates @ deviations.square() + weight.unsqueeze(1) * shift.square()
        else:
            scatter = (mates.unsqueeze(1) * deviations.T) @ deviations
            scatter += weight.view(-1, 1, 1) * shift.unsqueeze(2) * shift.unsqueeze(1)
        where = first if valid is None else first & valid
        self.scatter.add_where(rows, scatter, where)
        self.means.add_where(rows, shift * (more / total).unsqueeze(1), where)
        self.counts.add_where(rows, more, where)

    def measured(self) -> Tensor:
        """Which classes have had a sample, bool `[C]`."""
        return self.counts.rows > 0

    def spread(self, classes: Tensor) -> Tensor:
        """What turns standard normal numbers into deviations of `classes` `[R]`.

        Standard deviations `[R, D]`, or Cholesky factors `[R, D, D]` of the covariances.
        """
        divisor = (self.counts.rows[classes] - 1).clamp(min=1).unsqueeze(1)
        if self.covariance == "diagonal":
            return (self.scatter.rows[classes] / divisor + RIDGE).sqrt()
        covariance = self.scatter.rows[classes].double() / divisor.unsqueeze(2)
        factors: Tensor = torch.linalg.cholesky(covariance + RIDGE * torch.eye(self.width).to(covariance))
        return factors

    def draw(self, classes: Tensor, spread: Tensor, count: int, random: torch.Generator) -> Tensor:
        """`count` features drawn for each of `classes` `[R]` with their `spread`: `[R, count, D]`."""
        noise = torch.randn(len(classes), count, self.width, generator=random).to(spread)
        deviations = noise * spread.unsqueeze(1) if self.covariance == "diagonal" else noise @ spread.mT
        return self.means.rows[classes].unsqueeze(1) + deviations

    def _combine_classes(self, tensors: Tensors, values: dict[str, Any], source: int, into: int) -> None:  # noqa: ARG002
        """The Gaussian of one class becomes part of that of another in a saved state."""
        counts, means, scatter = (tensors[f"{self._prefix}{name}"] for name in ("counts", "means", "scatter"))
        n, more, shift = counts[into], counts[source], means[source] - means[into]
        square = torch.outer(shift, shift) if scatter.ndim == 3 else shift.square()
        total = (n + more).clamp(min=1)
        scatter[into] += scatter[source] + (square * (n * more / total)).to(scatter)
        means[into] += shift * (more / total)
        counts[into] += counts[source].clone()


@torch.no_grad()
def aligned_head(
    weight: Tensor,
    bias: Tensor,
    gaussians: ClassGaussians,
    *,
    epochs: int,
    draws: int,
    lr: float,
    random: torch.Generator,
) -> tuple[Tensor, Tensor]:
    """The linear map `[C, D]`, `[C]` after training on features drawn from the Gaussians; the given one is unchanged.

    Each epoch draws `draws` new features per class, in as many mixed batches as there are classes; cross entropy over
    the classes that have a Gaussian, momentum, and a rate that falls from `lr` to zero by a cosine over the epochs.
    Rows of classes without a Gaussian do not change.
    """
    classes = gaussians.measured().nonzero().squeeze(1)
    aligned = torch.cat([weight, bias.unsqueeze(1)], dim=1)
    head = aligned[classes]
    velocity, spread = torch.zeros_like(head), gaussians.spread(classes)
    labels = torch.arange(len(classes), device=head.device).repeat_interleave(draws)
    for epoch in range(epochs):
        features = gaussians.draw(classes, spread, draws, random).flatten(0, 1).to(head.dtype)
        order = torch.randperm(len(features), generator=random).to(head.device)
        rate = lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
        for batch in torch.split(order, draws):
            x = F.pad(features[batch], (0, 1), value=1.0)  # a last coordinate for the bias
            error = (x @ head.T).softmax(1)
            error[torch.arange(len(batch), device=batch.device), labels[batch]] -= 1
            velocity.mul_(MOMENTUM).add_(error.T @ x / len(batch)).add_(head, alpha=DECAY)
            head -= rate * velocity
    aligned[classes] = head
    return aligned[:, :-1].contiguous(), aligned[:, -1].contiguous()
