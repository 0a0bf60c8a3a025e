"""Whether tuning helps: the tuned network beside the frozen one, on chunks that neither has learnt.

Of the frozen network only its own feature is summed up, beside which the same part of the tuned network's statistics is
solved. Both predict a chunk before it is learnt; the difference of their log losses is the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.closed_form.moments import Totals, take_out_of_moments
from prol.methods.prol_plus.gaussian import Gaussian
from prol.methods.prol_plus.prior_temperature import prior_temperatures
from prol.state import State

EVERY = 4
"""Of so many chunks one is predicted by both networks."""
FADING = 0.95
"""Weight of earlier evidence when a chunk is compared: some 20 chunks count, as many as come in 80."""


class Evidence:
    """Sums of the frozen network's own feature while another is tuned, and how much the tuned one gained by now."""

    def __init__(self, state: State, width: int, grows: Callable[[], bool]) -> None:
        self._state = state
        self.gram: Tensor | None = torch.zeros(width, width, device=state.device)
        self.gain, self.squares = 0.0, 0.0
        state.optional("gram.0", self, "gram", kind="statistic")
        self.sums = state.table("sums", width, kind="statistic", combine="sum", grows=grows)
        self.counts = state.table("counts", dtype=torch.float64, kind="statistic", combine="sum", grows=grows)
        for name in ("gain", "squares"):
            state.value(name, self, later=True)
        state.on_remove(self._remove_class)

    def helps(self) -> bool:
        """Whether the tuned network is not behind by more than one standard error."""
        return self.gain >= -math.sqrt(self.squares)

    def compare(self, tuned: Totals, frozen_feature: Tensor, tuned_feature: Tensor, rows: Tensor, prior: float) -> None:
        """Both predict a chunk of class rows `[B]` that is not learnt yet, from their features `[B, P]`."""
        known = self.counts.rows > 0
        fair = known[rows]
        if self.gram is None or int(known.sum()) < 2 or not bool(fair.any()):
            return
        frozen = Totals(self.gram.double(), self.sums.rows.double(), self.counts.rows)
        losses = [
            label_losses(totals, feature[fair], rows[fair], prior)
            for totals, feature in ((frozen, frozen_feature), (tuned, tuned_feature))
        ]
        gains = losses[0] - losses[1]
        gain, squares = torch.stack([gains.sum(), gains.square().sum()]).tolist()
        self.gain, self.squares = FADING * self.gain + gain, FADING * self.squares + squares

    def add(self, feature: Tensor, rows: Tensor) -> None:
        """The frozen network's own feature `[B, P]` of images of the class rows `[B]`."""
        if self.gram is None:  # a file of an earlier version has no sums of the frozen network
            return
        self.gram.addmm_(feature.T, feature)
        member = F.one_hot(rows, len(self.counts.rows)).T
        self.sums.rows.addmm_(member.to(feature), feature)
        self.counts.rows.add_(member.sum(1))

    def end(self) -> None:
        """Tuning is over: nothing of the frozen network is needed any more."""
        self._state.overwrites("gram.0", "sums", "counts")
        self.gram = None
        for table in (self.sums, self.counts):
            table.truncate(0)

    def _remove_class(self, tensors: dict[str, Tensor], values: Mapping[str, object], row: int) -> str:  # noqa: ARG002
        if len(tensors[f"{self._state.prefix}counts"]):
            take_out_of_moments(tensors, self._state.prefix, row)
        return ""


def label_losses(totals: Totals, features: Tensor, rows: Tensor, prior: float) -> Tensor:
    """The log loss `[B]` of the Gaussian solved from moments, at its prior temperature, for features `[B, P]`."""
    levels = torch.zeros(features.shape[1], device=features.device)
    seen = totals.counts > 0
    scores = Gaussian.of(totals, levels, prior).head().scores(features)[:, seen]
    scaled = scores.double() / prior_temperatures(totals.counts)[rows].unsqueeze(1)
    return F.cross_entropy(scaled, (seen.cumsum(0) - 1)[rows], reduction="none")
