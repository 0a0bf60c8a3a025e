"""LayUP: ridge regression on the class tokens of the last blocks, its strength by generalised cross-validation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones.base import Tapped, require_tapped
from prol.backbones.blocks import Transformer
from prol.learner import InputOptions
from prol.methods.closed_form.moments import Moments, Totals
from prol.methods.closed_form.solved import SolvedLearner
from prol.methods.closed_form.solvers import SolvedHead, factor, mean_square, ridge
from prol.options import Count, Positive
from prol.state import State

STRENGTHS = tuple(10 ** (half / 2) for half in range(-10, 9))
"""Ridge strengths to choose from, in units of the features' mean square."""
FIRST = STRENGTHS.index(1.0)
"""Where the search begins: few samples want much."""
NO_FREEDOM = 1e-3
"""Share of the degrees of freedom that remain after the parameters, below which rounding decides."""
SHARE = 0.1
"""Ridge strength as a share of that with the least squared error, which is too large for accuracy with many classes."""
LARGEST = 1.0
"""Most of it, in units of the features' mean square: beyond, all that differs is the size of the scores."""


@dataclass(frozen=True)
class LayUPOptions(InputOptions):
    """Options of LayUP."""

    blocks: Count = 6
    """How many of the last blocks are read, or stages of networks without blocks; all where there are fewer."""
    ridge: Positive | Literal["auto"] = "auto"
    """Ridge strength; by default a tenth of the one with the least error by generalised cross-validation, chosen again
    whenever the classifier is solved."""
    accumulate: Literal["float64", "float32"] = "float64"
    """Number type of the statistics; float32 halves their size, and loses the small ridge strengths to rounding."""


def last_class_tokens(blocks: int, network: Transformer, inputs: Tensor) -> Tensor:
    """The class tokens behind the last blocks, first to last: `[B, blocks D]`."""
    # The last block's class token is no tap: there only its own row is computed.
    encoded = network.encode(network.embed(inputs), taps=range(network.depth - blocks, network.depth - 1))
    return torch.cat([*encoded.class_taps, encoded.class_token], dim=1)


def last_taps(blocks: int, network: Tapped, inputs: Tensor) -> Tensor:
    """What is read out of the last blocks or stages of any network, first to last."""
    return network.tapped(inputs, blocks)[1]


class LayUP(SolvedLearner):
    """Adds up the second moments of the last blocks' class tokens; scores are x (G + λI)⁻¹ S, solved for predictions.

    λ is chosen from the same sums: neither order nor chunks matter, up to rounding.
    """

    name: ClassVar[str] = "layup"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Ahrens et al., Read Between the Layers: Multi-Layer Representations (LayUP), TMLR 2024"
    additive: ClassVar[bool] = True
    Options: ClassVar[type] = LayUPOptions
    options: LayUPOptions

    def build(self, state: State) -> None:
        b, o = require_tapped(self.name, self.backbone), self.options
        widths = b.tap_widths[-o.blocks :]
        read = partial(last_taps, len(widths), b)
        if isinstance(b, Transformer):
            widths, read = (b.width,) * len(widths), partial(last_class_tokens, len(widths), b)
        self.look = b.frozen_pass(read)
        accumulate = torch.float64 if o.accumulate == "float64" else torch.float32
        self.moments, self.last_width = Moments(state, sum(widths), accumulate), widths[-1]
        self.moments.describe_classes()
        state.solves(self.moments.width, torch.float64)

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        self.moments.add(encoded, rows)

    def subtract(self, encoded: Tensor, rows: Tensor) -> tuple[str, ...]:
        self.moments.subtract(encoded, rows)
        return ()

    def solve(self) -> SolvedHead:
        totals, strength = self.moments.totals(), self.options.ridge
        if strength == "auto":
            top = STRENGTHS.index(LARGEST / SHARE)
            strength = SHARE * STRENGTHS[choose_strength(totals, top)] * mean_square(totals)
        return SolvedHead(ridge(totals, strength), None, totals.counts > 0)

    def familiar(self) -> Totals:
        """Moments of the last block alone."""
        return self.moments.part(self.moments.width - self.last_width, self.moments.width)

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:
        return super().score_familiarity(encoded[:, -self.last_width :])


def choose_strength(totals: Totals, top: int = len(STRENGTHS) - 1) -> int:
    """The place in `STRENGTHS`, at most `top`, with the least error: three to five solves as a rule, going downhill."""
    unit = float(totals.gram.diagonal().mean())
    if unit <= 0:  # nothing but zeros
        return FIRST

    @cache
    def error(place: int) -> float:
        return cross_validated(totals, STRENGTHS[place] * unit)

    best = FIRST
    while best < top and not math.isfinite(error(best)):  # too weak a penalty to be judged
        best += 1
    while True:
        lower = min((place for place in (best - 1, best + 1) if 0 <= place <= top), key=error)
        if error(lower) >= error(best):
            return best
        best = lower


def cross_validated(totals: Totals, penalty: float) -> float:
    """How far ridge regression to one-hot targets is off on samples that it has not seen, as a sum of squares.

    With G = XᵀX `[M, M]` and S = YᵀX `[C, M]` of N samples, W = S (G + λI)⁻¹ leaves N - tr(W Sᵀ) - λ |W|² on its own
    samples. A sample left out is further off by 1 / (1 - p/N), with p = tr(G (G + λI)⁻¹) parameters in effect. No
    sample is needed again.
    """
    count, matrix = float(totals.counts.sum()), totals.gram.clone()
    matrix.diagonal().add_(penalty)
    try:
        lower = factor(matrix)
    except ValueError:  # copies, of whose scatter rounding has left nothing: so weak a penalty cannot be judged
        return math.inf
    weight = torch.cholesky_solve(totals.sums.T, lower)
    left = count - float((weight * totals.sums.T).sum()) - penalty * float(weight.square().sum())
    # Of the inverse only the trace is wanted: single precision will do, and takes half the time.
    trace = float(torch.cholesky_inverse(lower.float()).diagonal().double().sum())
    freedom = 1 - (len(matrix) - penalty * trace) / max(count, 1e-9)
    return left / freedom**2 if freedom > NO_FREEDOM else math.inf
