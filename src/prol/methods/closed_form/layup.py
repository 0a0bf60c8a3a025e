"""LayUP: ridge regression on the class tokens of the last blocks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones.acceleration import FrozenPass
from prol.backbones.base import Tapped, require_tapped
from prol.backbones.blocks import Transformer
from prol.learner import InputOptions, Learner
from prol.methods.closed_form.class_removal import TAKEN, require_left_over
from prol.methods.closed_form.cross_validation import STRENGTHS, choose_strength
from prol.methods.closed_form.familiarity import RelativeDistance
from prol.methods.closed_form.moments import Moments
from prol.methods.closed_form.solvers import SolvedHead, mean_square, ridge
from prol.options import Count, Positive
from prol.state import State

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
    """Ridge strength; by default a tenth of the one with the least error by generalised cross-validation, chosen anew
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


class LayUP(Learner):
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
        self.look = FrozenPass(read, b.acceleration.captured)
        accumulate = torch.float64 if o.accumulate == "float64" else torch.float32
        self.moments, self.last_width = Moments(state, sum(widths), accumulate), widths[-1]
        state.count_by(self.moments.class_counts)
        state.solves(self.moments.width, torch.float64)
        state.on_remove(self._remove_class)
        state.trace(removed=self.moments.spread_trace)

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        self.moments.add(encoded, rows)

    def subtract(self, encoded: Tensor, rows: Tensor) -> tuple[str, ...]:
        require_left_over(self.moments.squares(), encoded)
        self.moments.add(encoded, rows, times=-1)
        return ()

    def score(self, encoded: Tensor) -> Tensor:
        return self.latest(self._solve).scores(encoded)

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:
        if not bool(self.moments.counts.rows.any()):
            return None
        return self.latest(self._distance).familiarity(encoded[:, -self.last_width :])

    def _solve(self) -> SolvedHead:
        totals, strength = self.moments.totals(), self.options.ridge
        if strength == "auto":
            top = STRENGTHS.index(LARGEST / SHARE)
            strength = SHARE * STRENGTHS[choose_strength(totals, intercept=False, top=top)] * mean_square(totals)
        return SolvedHead(ridge(totals, strength), None, totals.counts > 0)

    def _distance(self) -> RelativeDistance:
        """By the last block alone."""
        return RelativeDistance.of(self.moments.part(self.moments.width - self.last_width, self.moments.width))

    def _remove_class(self, tensors: dict[str, Tensor], values: dict[str, Any], row: int) -> str:  # noqa: ARG002
        self.moments.remove_class(tensors, row)
        return TAKEN
