"""Novelty scores: how much an image differs from the known classes, calibrated on known images as they arrived."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

ENOUGH = 50
"""Images of known classes that must be observed before there are scores."""
HALF_LIFE = 300
"""Images of known classes after which an observation counts half: the learner moves, and its familiarity with it."""
BINS = 256
"""Values that summarise all observations; up to twice as many are stored before neighbours are merged."""


class Novelty:
    """Turns a learner's familiarity into a score from 0 to 1: the share of known images that are more like it.

    `observe` takes the familiarity of images before they are learnt, `known` being those whose class was there
    already. The score is 1 - p with the conformal p-value p = (1 + w(f)) / (1 + w), w being the weight of all
    observations and w(f) of those at most as familiar. So about one in twenty images of known classes scores above
    0.95, as long as they are like those observed. Stored are sorted values with weights, at most `2 * BINS` of each.

    >>> novelty = Novelty()
    >>> novelty.observe(torch.arange(100.0), torch.ones(100, dtype=torch.bool))
    >>> novelty.unknown(torch.tensor([-5.0, 50.0, 200.0])).mul(100).round().tolist()
    [99.0, 51.0, 0.0]
    """

    def __init__(self) -> None:
        self.observed = 0
        self.values = torch.zeros(0, dtype=torch.float64)
        self.weights = torch.zeros(0, dtype=torch.float64)

    def observe(self, familiarity: Tensor, known: Tensor) -> None:
        """Adds the familiarity `[N]` of images in the order they came; those not `known` `[N]` do not count.

        Nor do values that are not finite.
        """
        if familiarity.ndim != 1 or familiarity.shape != known.shape:
            raise ValueError(
                f"familiarity and known must have one value per image, got shapes {tuple(familiarity.shape)} and "
                f"{tuple(known.shape)}"
            )
        fresh = familiarity.detach().double().cpu()
        fresh = fresh[known.detach().bool().cpu() & fresh.isfinite()]
        for part in torch.split(fresh, BINS):
            ages = torch.arange(len(part) - 1, -1, -1, dtype=torch.float64)
            weights = torch.cat([self.weights * 2.0 ** (-len(part) / HALF_LIFE), torch.exp2(-ages / HALF_LIFE)])
            values, order = torch.cat([self.values, part]).sort(stable=True)
            self.values, self.weights = values, weights[order]
            self.observed += len(part)
            if len(values) > 2 * BINS:
                self.values, self.weights = together(self.values, self.weights, BINS)

    def unknown(self, familiarity: Tensor) -> Tensor | None:
        """Scores `[N]` in 0..1 for familiarity `[N]`; None until enough was observed.

        NaN is like no known image.
        """
        if self.observed < ENOUGH:
            return None
        queried = familiarity.detach().double().cpu().nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf)
        below = torch.cat([torch.zeros(1, dtype=torch.float64), self.weights.cumsum(0)])
        at_most = below[torch.searchsorted(self.values, queried.contiguous(), right=True)]
        return (1 - (1 + at_most) / (1 + below[-1])).clamp(0, 1).float()

    def state(self) -> dict[str, Any]:
        """Everything needed to resume bit for bit, as JSON."""
        return {"observed": self.observed, "values": self.values.tolist(), "weights": self.weights.tolist()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        novelty = cls()
        try:
            novelty.observed = int(state["observed"])
            novelty.values = torch.tensor(state["values"], dtype=torch.float64)
            novelty.weights = torch.tensor(state["weights"], dtype=torch.float64)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError("the calibration of `unknown` cannot be read: begin a new one with Novelty()") from error
        if not novelty._sound():
            raise ValueError("the calibration of `unknown` is damaged: begin a new one with Novelty()")
        return novelty

    def _sound(self) -> bool:
        values, weights = self.values, self.weights
        return (
            values.ndim == 1
            and values.shape == weights.shape
            and len(values) <= min(2 * BINS, self.observed)
            and (len(values) > 0) == (self.observed > 0)
            and bool(values.isfinite().all() & weights.isfinite().all() & (weights >= 0).all())
            and bool((values.diff() >= 0).all())
        )


def together(values: Tensor, weights: Tensor, bins: int) -> tuple[Tensor, Tensor]:
    """Sorted values `[N]` and their weights in at most `bins` bins: each value is the mean of neighbours.

    All bins have about the same weight, so that no share is off by more than about one in `bins`.
    """
    middle = weights.cumsum(0) - weights / 2
    bin_of = (middle / weights.sum() * bins).long().clamp(max=bins - 1)
    starts = torch.cat([torch.ones(1, dtype=torch.bool), bin_of.diff() > 0])
    group = starts.cumsum(0) - 1
    # Means counted from the least of each group: equal values stay equal bit for bit.
    least, added = values[starts], torch.zeros(int(starts.sum()), dtype=torch.float64).index_add_(0, group, weights)
    above = torch.zeros_like(added).index_add_(0, group, weights * (values - least[group]))
    largest = values[torch.cat([starts[1:], torch.ones(1, dtype=torch.bool)])]
    means = least + torch.where(added > 0, above / added, 0)
    return torch.minimum(means, largest), added
