"""Tuning of the normalisation layers at the beginning of a stream: steps, when one is made, and whether it helps.

For the last the tuned network is compared with the frozen one on chunks that neither has learnt. Of the frozen network
only its own feature is summed up, beside which the same part of the tuned network's statistics is solved. Both predict
a chunk before it is learnt; the difference of their log losses is the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.base import Tapped
from prol.methods.closed_form.first_task import FirstTask
from prol.methods.closed_form.moments import Totals, require_usable, take_out_of_moments, usable
from prol.methods.prol_plus.features import Widths
from prol.methods.prol_plus.gaussian import Gaussian
from prol.methods.prol_plus.prior_temperature import prior_temperatures
from prol.state import State

WARM_UP = 0.25
"""Share of the steps of tuning over which the rate rises: a stream of a few chunks hardly moves the network."""
SURPRISE = 4.0
"""Images of a class that were due since its last one, from which on the class counts as gone."""
EVERY = 4
"""Of so many chunks one is predicted by both networks."""
FADING = 0.95
"""Weight of earlier evidence when a chunk is compared: some 20 chunks count, as many as come in 80."""


class FirstBlocks(FirstTask):
    """Tunes on the pooled feature, and reads the last blocks or stages in the same pass."""

    network: Tapped

    def __init__(self, state: State, backbone: Tapped, lr: float, widths: Widths) -> None:
        super().__init__(state, backbone, lr)
        self.frozen, self.blocks, self.pooled = backbone, widths.blocks, widths.pooled > 0
        self.stride = 1 + widths.class_tokens
        self.last = state.table("last", dtype=torch.int64, kind="statistic", combine="keep", grows=self._is_tuning)
        self.evidence = Evidence(state.scope("evidence"), widths.groups[-1], self._is_tuning)

    def end(self) -> None:
        super().end()
        self.last.truncate(0)
        self.evidence.end()

    def look(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        feature, taps = self.network.tapped(inputs, self.blocks)
        taps = taps[:, :: self.stride]
        return feature, torch.cat([taps, feature], dim=1) if self.pooled else taps

    def frozen_feature(self, inputs: Tensor) -> Tensor:
        """The frozen network's own feature `[B, P]`, or where it is not read what is read last."""
        if self.pooled:
            return self.frozen.features(inputs).float()
        return self.frozen.tapped(inputs, 1)[1][:, :: self.stride].float()

    def seen(self, inputs: Tensor) -> Tensor:
        """Features of blocks `[B, L]` alone."""
        return self.look(inputs)[1].float()

    def step_and_look(self, inputs: Tensor, rows: Tensor, steps: int, rate: float) -> tuple[Tensor, Tensor, float]:
        """One step: features of blocks before and after it `[B, L]`, and the loss. If it ruins them, it is undone."""
        undo = self._state.snapshot()
        before, loss = self.step(inputs, rows, steps, rate)
        before, after = before.float(), self.seen(inputs)
        if not (usable(before) and usable(after)):
            self._state.restore(undo)
            require_usable(before)
            raise ValueError(
                f"step {steps + 1} of tuning, at the rate {rate:g}, ruins the network's features: "
                "it is undone and the chunk not learnt; lower adapt_lr="
            )
        return before, after, loss


def gone(counts: Tensor, last: Tensor, seen: int) -> Tensor:
    """Which classes come no more, bool `[C]`: the stream would hardly be without them for so long by chance.

    `counts` `[C]` are the images of each class and `seen` those of all; `last` `[C]` is what `seen` was at the class's
    last one. If it still came as often, the chance of such a gap would be below exp(-`SURPRISE`). A class that came
    once may be a rare one.

    >>> gone(torch.tensor([5.0, 5.0, 1.0]), torch.tensor([90, 40, 10]), 100)
    tensor([False,  True, False])
    """
    return (counts - 1) * (seen - last) > SURPRISE * last


def one_cycle(progress: float) -> float:
    """The share of the largest rate at a share of all steps: up by a line, then down to zero by a cosine.

    >>> [round(one_cycle(progress), 2) for progress in (0.0, 0.125, 0.25, 0.625, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if progress < WARM_UP:
        return progress / WARM_UP
    return (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))) / 2


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
