"""F-OAL: recursive least squares on random sigmoid features of all blocks' class tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.blocks import Transformer
from prol.classes import Tensors
from prol.learner import InputOptions, Learner
from prol.merging import Sums
from prol.methods.closed_form.moments import SPREAD, TAKEN
from prol.methods.closed_form.random_features import RandomLayer, sigmoid_features, uniform
from prol.methods.closed_form.solvers import (
    SolvedHead,
    forget_least_squares,
    recursive_least_squares,
    ridge_from_sums,
    sums_of_ridge,
    take_out_of_inverse,
)
from prol.options import Count, Positive
from prol.state import State


@dataclass(frozen=True)
class FOALOptions(InputOptions):
    """Options of F-OAL."""

    features: Count = 1_000
    """How many random features."""
    ridge: Positive = 1.0
    """Ridge strength."""


def mean_class_token(network: Transformer, inputs: Tensor) -> Tensor:
    """Mean over the blocks of the class token, then the final LayerNorm: `[B, D]`."""
    # The last block's class token is no tap: there only its own row is computed.
    encoded = network.encode(network.embed(inputs), taps=range(network.depth - 1))
    return network.final_norm(torch.stack([*encoded.class_taps, encoded.class_token]).mean(0))


class FOAL(Learner):
    """Stores R = (G + λI)⁻¹ and the weights: after every chunk they are the ridge solution of the stream.

    An update costs M² operations per sample and never solves anything of size M; RanPAC's G would have to be solved
    again.
    """

    name: ClassVar[str] = "foal"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Zhuang et al., F-OAL: Forward-only Online Analytic Learning, NeurIPS 2024"
    additive: ClassVar[bool] = True
    Options: ClassVar[type] = FOALOptions
    options: FOALOptions

    def build(self, state: State) -> None:
        b, o = self.backbone, self.options
        if isinstance(b, Transformer):  # other networks have no class token to average: their pooled feature is used
            self.look = b.frozen_pass(partial(mean_class_token, b))
        # float64 throughout: R is changed at every step, and its rounding errors add up.
        start = torch.eye(o.features, device=b.device, dtype=torch.float64) / o.ridge
        self.inverse = state.tensor("inverse", start, kind="statistic")
        # Zeros are the solution for a class that no sample has had so far; weights are linear in the class sums.
        self.weight = state.table("weight", o.features, dtype=torch.float64, kind="parameter", combine="sum")
        self.counts = state.table("counts", dtype=torch.float64, kind="statistic", counts=True)
        self.layer = RandomLayer(state, self.seed, self._draw)
        state.on_merge(give=self._sums, take=self._merged)
        state.on_remove(self._remove_class)
        state.trace(removed=self._spread_trace)

    def _spread_trace(self, row: int | None) -> str:
        return "" if row is not None and int(self.counts.rows[row]) <= 1 else SPREAD

    def _draw(self, random: torch.Generator) -> dict[str, Tensor]:
        b, bound = self.backbone, self.backbone.width**-0.5
        return {"map": uniform((b.width, self.options.features), -bound, bound, random, b.device, b.dtype)}

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        targets = F.one_hot(rows, len(self.classes)).double()
        recursive_least_squares(self.inverse, self.weight.rows, self._embedded(encoded).double(), targets)
        self.counts.rows.add_(targets.sum(0))

    def subtract(self, encoded: Tensor, rows: Tensor) -> tuple[str, ...]:
        targets = F.one_hot(rows, len(self.classes)).double()
        forget_least_squares(self.inverse, self.weight.rows, self._embedded(encoded).double(), targets)
        self.counts.rows.sub_(targets.sum(0))
        return ()

    def _embedded(self, encoded: Tensor) -> Tensor:
        return sigmoid_features(encoded, self.layer["map"])

    def score(self, encoded: Tensor) -> Tensor:
        return SolvedHead(self.weight.rows, None, self.counts.rows > 0).scores(self._embedded(encoded))

    def score_familiarity(self, encoded: Tensor) -> Tensor:
        """The highest score less the leverage φᵀRφ, which is large where nothing like φ was ever learnt."""
        embedded = self._embedded(encoded).double()
        scores = SolvedHead(self.weight.rows, None, self.counts.rows > 0).scores(embedded)
        return scores.amax(1) - (embedded @ self.inverse * embedded).sum(1)

    def _remove_class(self, tensors: dict[str, Tensor], values: dict[str, Any], row: int) -> str:  # noqa: ARG002
        take_out_of_inverse(tensors["inverse"], tensors["weight"], tensors["counts"], row, self.options.ridge)
        return TAKEN

    @torch.no_grad()
    def _sums(self, declared: Sums) -> Sums:
        """G and the class sums, which R and the weights are the solution of."""
        gram, sums = sums_of_ridge(self.inverse, self.weight.rows, self.options.ridge)
        tables = {"sums": sums, "counts": self.counts.rows}
        return Sums(tables, {"gram": gram}, agreed=declared.agreed, rest=({}, declared.rest[1]))

    def _merged(self, tensors: Tensors, values: dict[str, Any], classes: int) -> Tensors:  # noqa: ARG002
        inverse, weight = ridge_from_sums(tensors["gram"], tensors["sums"], self.options.ridge)
        return {"inverse": inverse, "weight": weight, "counts": tensors["counts"]}
