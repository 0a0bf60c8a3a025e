"""Linear discriminant analysis of a stream of feature vectors: one pass, classes and features may grow."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.closed_form.moments import Moments, Totals
from prol.methods.closed_form.solvers import SolvedHead, lda
from prol.state import State

Shrinkage = float | Literal["oas"]

STILL = 1e-12
"""Share of its mean below which the spread of a feature is rounding."""
LARGEST = 1e100
"""Size of a feature above which squares of many could not be added up."""


def require_shrinkage(shrinkage: Any) -> None:
    """Refuses what is neither "oas" nor a share."""
    number = isinstance(shrinkage, int | float) and not isinstance(shrinkage, bool)
    if shrinkage != "oas" and not (number and 0 <= shrinkage <= 1):
        raise ValueError(f"shrinkage must be a number from 0 to 1, or 'oas', got {shrinkage!r}")


def require_features(features: Tensor) -> None:
    """Refuses features that cannot be added up."""
    if not bool((features.abs() <= LARGEST).all()):
        raise ValueError(f"features must be numbers of at most {LARGEST:g} in size: scale or leave out larger ones")


def standardised_lda(totals: Totals, centre: Tensor, shrinkage: Shrinkage, priors: bool) -> tuple[Tensor, Tensor]:
    """Weights `[C, M]` and biases `[C]` of an LDA whose shrinkage does not depend on the units of features.

    `totals` are those of features from which their mean, `centre` `[M]`, was subtracted. Each feature is divided by its
    standard deviation, so that the covariance is shrunk alike in all of them; those that never change are left out.
    """
    count = totals.counts.sum().clamp(min=1)
    variance = totals.gram.diagonal() / count
    moving = (variance > (STILL * centre).square()).nonzero().flatten()
    weight = torch.zeros_like(totals.sums)
    if not len(moving):
        shares = totals.counts / count
        return weight, shares.log() if priors else torch.zeros_like(shares)
    scale = variance[moving].sqrt()
    gram = totals.gram[moving][:, moving] / scale / scale.unsqueeze(1)
    scaled = Totals(gram, totals.sums[:, moving] / scale, totals.counts)
    found, bias = lda(scaled, None if shrinkage == "oas" else shrinkage, priors)
    weight[:, moving] = found / scale
    return weight, bias


class Discriminant:
    """Adds up second moments about the mean of all samples; the classifier is solved from them when it is asked.

    Learning is the same in any order and for any chunk size, up to rounding. It keeps no sample: what it keeps grows
    with the square of the number of features, and not with the number of samples.
    """

    def __init__(self, width: int = 0) -> None:
        self.width = width
        self.centre = torch.zeros(max(1, width), dtype=torch.float64)
        self._empty_moments()
        self._solved: tuple[Shrinkage, bool, SolvedHead] | None = None

    def _empty_moments(self) -> None:
        self._state = State("cpu")
        self.moments = Moments(self._state, len(self.centre), torch.float64)

    @property
    def classes(self) -> int:
        return self.moments.counts.count

    def add_classes(self, count: int) -> None:
        """More rows, of classes of which nothing was seen yet."""
        self._state.add_classes(count)
        self._solved = None

    def widen(self, width: int) -> None:
        """More features, which were zero in all that was seen so far."""
        if width > len(self.centre):  # by doubling, so that features that come one by one are not copied as often
            self._make_room(max(width, 2 * len(self.centre)))
        self.width = width

    def learn(self, features: Tensor, rows: Tensor) -> None:
        """Takes in float64 features `[B, width]` of the class rows `[B]`."""
        require_features(features)
        x = F.pad(features, (0, len(self.centre) - self.width))
        step = (x - self.centre).sum(0) / (self.moments.counts.rows.sum() + len(x))
        self.moments.shift(-step)
        self.centre = self.centre + step
        self.moments.add(x - self.centre, rows)
        self._solved = None

    def scores(self, features: Tensor, shrinkage: Shrinkage, priors: bool) -> Tensor:
        """Log-probabilities `[B, C]` up to a number that is the same for all classes of a sample; unseen: -infinity."""
        x = F.pad(features, (0, len(self.centre) - self.width)) - self.centre
        return self._head(shrinkage, priors).scores(x)

    def _head(self, shrinkage: Shrinkage, priors: bool) -> SolvedHead:
        if self._solved is None or self._solved[:2] != (shrinkage, priors):
            totals = self.moments.totals()
            head = SolvedHead(*standardised_lda(totals, self.centre, shrinkage, priors), totals.counts > 0)
            self._solved = shrinkage, priors, head
        return self._solved[2]

    def _make_room(self, room: int) -> None:
        old, totals = len(self.centre), self.moments.totals()
        gram = F.pad(totals.gram, (0, room - old, 0, room - old))
        self.centre = F.pad(self.centre, (0, room - old))
        self._empty_moments()
        blocks = {}
        for number, block in enumerate(self.moments.blocks):
            height, end = block.shape
            blocks[f"gram.{number}"] = gram[end - height : end, :end]
        sums = F.pad(totals.sums, (0, room - old))
        self._state.load(blocks | {"sums": sums, "counts": totals.counts}, {}, len(sums))
        self._solved = None

    # A pickle holds plain arrays: no live tensor, and nothing that can be solved again.

    def __getstate__(self) -> dict[str, Any]:
        arrays = {name: tensor.numpy().copy() for name, tensor in self.moments.tensors().items()}
        return {"width": self.width, "centre": self.centre.numpy().copy(), "moments": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.width, self.centre = state["width"], torch.tensor(state["centre"])
        self._empty_moments()
        tensors = {name: torch.tensor(array) for name, array in state["moments"].items()}
        self._state.load(tensors, {}, len(tensors["counts"]))
        self._solved = None
