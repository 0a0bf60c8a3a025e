"""A linear head on a frozen backbone, trained without any prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.engine import losses
from prol.engine.adam import Adam
from prol.engine.heads import LinearHead
from prol.learner import TaskOptions
from prol.methods.gradient import GradientLearner, StepOptions, descend
from prol.options import NotNegative
from prol.state import State


@dataclass(frozen=True)
class HeadOnlyOptions(StepOptions, TaskOptions):
    """Options of the linear head."""

    inter: NotNegative = 1.0
    """Weight of the cross entropy over all classes known so far."""
    intra: NotNegative = 0.0
    """Weight of the cross entropy over the current task's classes."""
    lr: NotNegative = 0.05
    """Nominal learning rate; the effective one is lr x chunk / 256 with lr_scaling."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inter == 0 and self.intra == 0:
            raise ValueError("inter and intra are both 0, so nothing would be learnt: give one of them a weight")


class HeadOnly(GradientLearner):
    """One Linear that grows with the classes, trained by Adam on the class feature; the backbone stays as it is."""

    name: ClassVar[str] = "head_only"
    family: ClassVar[str] = "fine-tuning"
    citation: ClassVar[str] = "linear probe, the plain baseline"
    encoding: ClassVar[Literal["none", "query", "all"]] = "all"
    Options: ClassVar[type] = HeadOnlyOptions
    options: HeadOnlyOptions

    def build(self, state: State) -> None:
        b = self.backbone
        self.head = LinearHead(state, b.width, b.dtype, deviation=0.02, random=self.random)
        self.adam = Adam(state, per_class={"weight": "mean", "bias": "mean"})
        self.train_with(state)

    def start_task(self) -> None:
        self.adam.reset()

    @torch.no_grad()
    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        return {"features": self.backbone.features(self.rendered(*staged))}

    def one_step(self, features: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o, parts, first = self.options, self.head.trained(), self.clock.first_row
        logits = self.head.logits(features, parts)
        inter, intra = both_cross_entropies(logits, rows, first)
        return descend(
            {"inter": inter, "intra": intra, "total": o.inter * inter + o.intra * intra}, parts, self.adam, o
        )

    def score(self, encoded: Tensor) -> Tensor:
        return F.linear(encoded, self.head.weight.rows, self.head.bias.rows)


def both_cross_entropies(logits: Tensor, rows: Tensor, first: int) -> tuple[Tensor, Tensor]:
    """Cross entropy of `[B, C]` over all classes, and over those from row `first` on for their own samples alone."""
    every = torch.arange(logits.shape[1], device=rows.device)
    return losses.inter_task(logits, rows), losses.intra_task(logits, rows, every >= first, rows >= first)
