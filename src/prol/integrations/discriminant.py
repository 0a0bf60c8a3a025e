"""Linear discriminant analysis of a stream of feature vectors: one pass, with new classes and features at any time."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.closed_form.moments import Moments, Totals
from prol.methods.closed_form.solvers import SolvedHead, lda
from prol.state import State

Shrinkage = float | Literal["oas"]

CONSTANT = 1e-12
"""Standard deviation relative to the mean below which a feature is constant up to rounding."""
LARGEST = 1e100
"""Largest absolute value of a feature; sums of larger squares could overflow."""


def require_shrinkage(shrinkage: Any) -> None:
    """Refuses what is neither "oas" nor a number from 0 to 1."""
    number = isinstance(shrinkage, int | float) and not isinstance(shrinkage, bool)
    if shrinkage != "oas" and not (number and 0 <= shrinkage <= 1):
        raise ValueError(f"shrinkage must be a number from 0 to 1, or 'oas', got {shrinkage!r}")


def require_features(features: Tensor) -> None:
    """Refuses features whose squares could overflow."""
    if not bool((features.abs() <= LARGEST).all()):
        raise ValueError(
            f"features must be numbers of at most {LARGEST:g} in absolute value: rescale or drop larger ones"
        )


def standardised_lda(totals: Totals, centre: Tensor, shrinkage: Shrinkage, priors: bool) -> tuple[Tensor, Tensor]:
    """Weights `[C, M]` and biases `[C]` of an LDA whose shrinkage does not depend on the units of features.

    `totals` are those of features minus their mean, `centre` `[M]`. Each feature is divided by its standard deviation,
    so that shrinkage affects all of them equally; constant features have weight zero.
    """
    count = totals.counts.sum().clamp(min=1)
    variance = totals.gram.diagonal() / count
    varying = (variance > (CONSTANT * centre).square()).nonzero().flatten()
    weight = torch.zeros_like(totals.sums)
    if not len(varying):
        shares = totals.counts / count
        return weight, shares.log() if priors else torch.zeros_like(shares)
    scale = variance[varying].sqrt()
    gram = totals.gram[varying][:, varying] / scale / scale.unsqueeze(1)
    scaled = Totals(gram, totals.sums[:, varying] / scale, totals.counts)
    found, bias = lda(scaled, None if shrinkage == "oas" else shrinkage, priors)
    weight[:, varying] = found / scale
    return weight, bias


class Discriminant:
    """Accumulates second moments about the mean of all samples; the classifier is solved from them on demand.

    The result does not depend on order or chunk size, up to rounding. No sample is stored: memory grows with the square
    of the number of features, not with the number of samples.
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
        """Adds rows for classes without any sample."""
        self._state.add_classes(count)
        self._solved = None

    def widen(self, width: int) -> None:
        """Adds features, which were zero in all samples so far."""
        if width > len(self.centre):  # by doubling: features that arrive one by one are copied less often
            self._reserve(max(width, 2 * len(self.centre)))
        self.width = width

    def learn(self, features: Tensor, rows: Tensor) -> None:
        """Learns float64 features `[B, width]` of the class rows `[B]`."""
        require_features(features)
        x = F.pad(features, (0, len(self.centre) - self.width))
        step = (x - self.centre).sum(0) / (self.moments.counts.rows.sum() + len(x))
        self.moments.shift(-step)
        self.centre = self.centre + step
        self.moments.add(x - self.centre, rows)
        self._solved = None

    def scores(self, features: Tensor, shrinkage: Shrinkage, priors: bool) -> Tensor:
        """Log-probabilities `[B, C]` up to a constant per sample; minus infinity for classes without any sample."""
        x = F.pad(features, (0, len(self.centre) - self.width)) - self.centre
        return self._head(shrinkage, priors).scores(x)

    def _head(self, shrinkage: Shrinkage, priors: bool) -> SolvedHead:
        if self._solved is None or self._solved[:2] != (shrinkage, priors):
            totals = self.moments.totals()
            head = SolvedHead(*standardised_lda(totals, self.centre, shrinkage, priors), totals.counts > 0)
            self._solved = shrinkage, priors, head
        return self._solved[2]

    def _reserve(self, room: int) -> None:
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

    # A pickle holds plain arrays, and not the classifier, which can be solved again.

    def __getstate__(self) -> dict[str, Any]:
        arrays = {name: tensor.numpy().copy() for name, tensor in self.moments.tensors().items()}
        return {"width": self.width, "centre": self.centre.numpy().copy(), "moments": arrays}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.width, self.centre = state["width"], torch.tensor(state["centre"])
        self._empty_moments()
        tensors = {name: torch.tensor(array) for name, array in state["moments"].items()}
        self._state.load(tensors, {}, len(tensors["counts"]))
        self._solved = None
