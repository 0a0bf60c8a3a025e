"""Logistic regression on the stored features of all images: a reference for methods that store none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.base import require_tapped
from prol.learner import InputOptions, Learner
from prol.methods.closed_form.layup import last_taps
from prol.methods.closed_form.moments import require_usable
from prol.methods.closed_form.recollection import NOT_FOUND, NOT_SUMS, EveryFeature
from prol.methods.closed_form.solvers import SolvedHead
from prol.options import Count, Positive
from prol.state import State

PENALTIES = tuple(10 ** (half / 2) for half in range(-8, 5))
"""Penalties to choose from."""
FIRST = PENALTIES.index(0.1)
"""Where the search begins, and stays while no class has two images."""
HELD_OUT_EVERY = 5


@dataclass(frozen=True)
class LogRegOptions(InputOptions):
    """Options of logistic regression."""

    features: Literal["pooled", "prol_plus"] = "pooled"
    """What is classified: the network's feature, or what PROL+ reads of the last blocks of an untuned network."""
    blocks: Count = 6
    """How many of the last blocks or stages are read with features=prol_plus; all where there are fewer."""
    penalty: Positive | Literal["auto"] = "auto"
    """Penalty on the squared weights, beside the mean loss; by default the one with the least loss on every fifth image
    of each class."""


class LogReg(Learner):
    """Stores the feature of every image; for predictions a regression is fitted to all of them, by L-BFGS.

    It is a function of what is stored alone, so that nothing depends on when predictions were made.
    """

    name: ClassVar[str] = "logreg"
    family: ClassVar[str] = "stored features"
    citation: ClassVar[str] = "Cox, The Regression Analysis of Binary Sequences, JRSS B 1958; Liu and Nocedal, 1989"
    keeps_samples: ClassVar[bool] = True
    Options: ClassVar[type] = LogRegOptions
    options: LogRegOptions

    def build(self, state: State) -> None:
        b, width = self.backbone, self.backbone.width
        if self.options.features == "prol_plus":
            tapped = require_tapped(self.name, b)
            widths = tapped.tap_widths[-self.options.blocks :]
            self.look = b.frozen_pass(partial(last_taps, len(widths), tapped))
            width = sum(widths)
        self.stored_features = EveryFeature(state, width, b.dtype)
        state.on_merge(self._refuse_merging)
        state.solves(width + 1, torch.float64)

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        require_usable(encoded)
        self.stored_features.add(encoded, rows)

    def score(self, encoded: Tensor) -> Tensor:
        return self.latest(self._solve).scores(encoded)

    def _solve(self) -> SolvedHead:
        features, rows = self.stored_features.features.rows.double(), self.stored_features.rows.rows
        counts = self.stored_features.class_counts()
        weight = features.new_zeros(len(counts), features.shape[1] + 1)
        if len(rows):
            known, targets = torch.unique(rows, return_inverse=True)
            penalty = self.options.penalty
            weight[known] = fitted(features, targets, None if penalty == "auto" else penalty)
        return SolvedHead(weight[:, :-1], weight[:, -1], counts > 0)

    def subtract(self, encoded: Tensor, rows: Tensor) -> Sequence[str]:  # noqa: ARG002
        raise ValueError(f"logreg {NOT_FOUND}")

    def _refuse_merging(self) -> None:
        raise ValueError(f"logreg {NOT_SUMS}")

    def exemptions(self) -> dict[str, str]:
        return self.stored_features.exemptions(self.name)


def fitted(features: Tensor, rows: Tensor, penalty: float | None) -> Tensor:
    """Weights and biases `[C, D + 1]` for features `[N, D]` of the class rows `[N]`, each class with one at least.

    They are fitted where every feature has the mean 0 and the deviation 1. Without a penalty one is chosen.
    """
    mean, deviation = features.mean(0), features.std(0, correction=0)
    inverse = torch.where(deviation > 0, 1 / deviation, 0)
    x, turn = (features - mean) * inverse, None
    if x.shape[0] < x.shape[1]:  # the weights lie in the span of the samples: no other coordinates are needed
        turn, upper = torch.linalg.qr(x.T)
        x = upper.T
    weight = minimised(x, rows, choose_penalty(x, rows) if penalty is None else penalty)
    linear = (weight[:, :-1] if turn is None else weight[:, :-1] @ turn.T) * inverse
    return torch.cat([linear, weight[:, -1:] - linear @ mean.unsqueeze(1)], dim=1)


def choose_penalty(x: Tensor, rows: Tensor) -> float:
    """The penalty whose weights, fitted to the other samples, have the least loss on every fifth of each class.

    The second, the seventh and so on are held out, so that a class of two images has one to fit and one to judge by.
    """
    held = place_in_class(rows) % HELD_OUT_EVERY == 1
    if not bool(held.any()):
        return PENALTIES[FIRST]
    start: Tensor | None = None

    @cache
    def loss(place: int) -> float:
        nonlocal start
        start = minimised(x[~held], rows[~held], PENALTIES[place], start, steps=100, least_gradient=1e-4)
        return float(F.cross_entropy(logits(start, x[held]), rows[held]))

    best = FIRST
    while True:
        beside = [place for place in (best - 1, best + 1) if 0 <= place < len(PENALTIES)]
        lower = min(beside, key=loss)
        if loss(lower) >= loss(best):
            return PENALTIES[best]
        best = lower


def place_in_class(rows: Tensor) -> Tensor:
    """How many samples of the same class came before each, `[N]`."""
    order = rows.argsort(stable=True)
    counts = torch.bincount(rows)
    first = counts.cumsum(0) - counts
    place = torch.empty_like(rows)
    place[order] = torch.arange(len(rows), device=rows.device) - first[rows[order]]
    return place


@torch.enable_grad()
def minimised(
    x: Tensor,
    rows: Tensor,
    penalty: float,
    start: Tensor | None = None,
    steps: int = 500,
    least_gradient: float = 1e-6,
) -> Tensor:
    """Weights `[C, D + 1]`, the bias last, with the least mean cross entropy + penalty / 2 |W|²; biases are free."""
    shape = (int(rows.max()) + 1, x.shape[1] + 1)
    weight = (x.new_zeros(shape) if start is None else start.clone()).requires_grad_()
    solver = torch.optim.LBFGS(
        [weight], max_iter=steps, tolerance_grad=least_gradient, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        solver.zero_grad()
        loss = F.cross_entropy(logits(weight, x), rows) + penalty / 2 * weight[:, :-1].square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    solver.step(closure)  # type: ignore[no-untyped-call]
    return weight.detach()


def logits(weight: Tensor, x: Tensor) -> Tensor:
    return F.linear(x, weight[:, :-1], weight[:, -1])
