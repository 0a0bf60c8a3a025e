"""F-OAL: recursive least squares on random sigmoid features of all blocks' class tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import Augment, Backbone, InputRange, Pixels, ViT, evaluation_input
from prol.class_rows import AUGMENTED, Contents
from prol.labels import Label
from prol.learner import Amount, Footprint, Learner, State
from prol.parts.class_removal import SPREAD, TAKEN, forget_least_squares, take_out_of_inverse
from prol.parts.frozen_pass import FrozenPass
from prol.parts.inputs import require_not_augmented, require_nothing_drawn, training_input
from prol.parts.random_features import own_generator, sigmoid_features, uniform
from prol.parts.rows import RowTable
from prol.parts.solvers import SolvedHead, recursive_least_squares, ridge_from_sums, sums_of_ridge
from prol.sums import Sums


@dataclass(frozen=True)
class FOALOptions:
    """Dials of F-OAL."""

    features: int = 1_000
    """How many random features."""
    ridge: float = 1.0
    """Strength of the penalty on the weights' squares."""
    augment: Augment = "none"
    input_range: InputRange = "backbone"
    crop_pct: float | None = None

    def __post_init__(self) -> None:
        if self.features < 1:
            raise ValueError(f"features must be at least 1, got {self.features}")
        if not 0 < self.ridge < float("inf"):
            raise ValueError(f"ridge must be a finite number above 0, got {self.ridge}")


def mean_class_token(network: ViT, inputs: Tensor) -> Tensor:
    """Mean over the blocks of the class token, then the final LayerNorm: `[B, D]`."""
    # The last block's class token is no tap: there only its own row is computed.
    encoded = network.encode(network.embed(inputs), taps=range(network.depth - 1))
    return network.final_norm(torch.stack([*encoded.class_taps, encoded.class_token]).mean(0))


class FOAL(Learner):
    """Keeps R = (G + λI)⁻¹ and the weights up to date: after every chunk they are the ridge solution of the stream.

    A step costs M² operations a sample and never solves anything of size M; G of RanPAC would have to be solved anew.
    """

    name: ClassVar[str] = "foal"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Zhuang et al., F-OAL: Forward-only Online Analytic Learning, NeurIPS 2024"
    fixed = "all"
    Options: ClassVar[type] = FOALOptions
    options: FOALOptions
    backbone: ViT

    def __init__(self, backbone: Backbone, options: FOALOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        if not isinstance(backbone, ViT):
            raise ValueError(f"method foal needs a ViT as backbone, got {type(backbone).__name__}")
        self.preprocessing = backbone.preprocessing.overridden(options.input_range, options.crop_pct)
        self._look = FrozenPass(partial(mean_class_token, backbone), backbone.acceleration.captured)
        # float64 throughout: R is changed at every step, and its rounding errors add up.
        self.inverse = torch.eye(options.features, device=backbone.device, dtype=torch.float64) / options.ridge
        self.weight = RowTable((options.features,), backbone.device, torch.float64)
        self.counts = RowTable((), backbone.device, torch.float64)
        self._draw(seed)

    def _draw(self, seed: int) -> None:
        b, self.drawn_from, reach = self.backbone, seed, self.backbone.width**-0.5
        self.map = uniform((b.width, self.options.features), -reach, reach, own_generator(seed), b.device, b.dtype)

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        # Zeros are the solution for a class that no sample has had so far.
        self.weight.append(torch.zeros(len(names), self.options.features))
        self.counts.append(torch.zeros(len(names)))

    @torch.no_grad()
    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        inputs = training_input(pixels, self.preprocessing, self.backbone, self.options.augment, self.random)
        embedded = sigmoid_features(self._look(inputs), self.map).double()
        targets = F.one_hot(rows, len(self.classes)).double()
        recursive_least_squares(self.inverse, self.weight.rows, embedded, targets)
        self.counts.rows.add_(targets.sum(0))

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self._look(evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype))

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        embedded = sigmoid_features(self._fixed(pixels) if fixed is None else fixed, self.map)
        return SolvedHead(self.weight.rows, None, self.counts.rows > 0).scores(embedded)

    @torch.no_grad()
    def _unlearn(self, pixels: Pixels, rows: Tensor) -> tuple[str, ...]:
        require_not_augmented(self.options.augment)
        embedded = sigmoid_features(self._fixed(pixels), self.map).double()
        targets = F.one_hot(rows, len(self.classes)).double()
        forget_least_squares(self.inverse, self.weight.rows, embedded, targets)
        self.counts.rows.sub_(targets.sum(0))
        return ()

    def contents(self, row: int | None = None) -> Contents:
        few = row is not None and int(self.counts.rows[row]) <= 1
        augmented = () if self.options.augment == "none" else (AUGMENTED,)
        return Contents(
            {"weight": "sum", "counts": "sum"},  # weights are linear in the class sums
            statistics=("inverse", "counts"),
            traces=(() if few else (SPREAD,)) + augmented,
            take_out=self._take_out,
        )

    def _take_out(self, tensors: dict[str, Tensor], meta: dict[str, Any], row: int) -> str:
        del meta
        take_out_of_inverse(tensors["inverse"], tensors["weight"], tensors["counts"], row, self.options.ridge)
        return TAKEN

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor | None:
        """The highest score less the leverage φᵀRφ, which is large where nothing like φ was ever learnt."""
        if not bool(self.counts.rows.any()):
            return None
        embedded = sigmoid_features(self._fixed(pixels) if fixed is None else fixed, self.map).double()
        scores = SolvedHead(self.weight.rows, None, self.counts.rows > 0).scores(embedded)
        return scores.amax(1) - (embedded @ self.inverse * embedded).sum(1)

    @torch.no_grad()
    def added_up(self) -> Sums:
        """G and the class sums, which R and the weights are the solution of."""
        require_nothing_drawn(self.options.augment)
        gram, sums = sums_of_ridge(self.inverse, self.weight.rows, self.options.ridge)
        return Sums(
            {"sums": sums, "counts": self.counts.rows},
            {"gram": gram},
            agreed={"seed of the random features": self.drawn_from},
            rest=({}, {"drawn_from": self.drawn_from}),
        )

    def _from_sums(self, sums: Sums, classes: int) -> State:  # noqa: ARG002
        inverse, weight = ridge_from_sums(sums.totals["gram"], sums.tables["sums"], self.options.ridge)
        return {"inverse": inverse, "weight": weight, "counts": sums.tables["counts"]}, dict(sums.rest[1])

    def class_counts(self) -> Tensor:
        return self.counts.rows

    def footprint(self) -> Footprint:
        nothing = Amount(0, 0)
        statistics = Amount.of(self.inverse, self.counts.rows)
        return Footprint(nothing, Amount.of(self.map, self.weight.rows), statistics, nothing)

    def _state(self) -> State:
        tensors = {"inverse": self.inverse, "weight": self.weight.rows, "counts": self.counts.rows}
        return tensors, {"drawn_from": self.drawn_from}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.inverse = tensors["inverse"]
        self.weight.replace(tensors["weight"])
        self.counts.replace(tensors["counts"])
        if meta["drawn_from"] != self.drawn_from:
            self._draw(meta["drawn_from"])
