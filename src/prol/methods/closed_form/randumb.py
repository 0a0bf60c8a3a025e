"""RanDumb: random Fourier features, and streaming linear discriminant analysis."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from prol.learner import InputOptions, TaskClock, TaskOptions
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.random_features import RandomLayer, fourier_features, gamma_by_variance, normal, uniform
from prol.methods.closed_form.recollection import Memory, Recollection
from prol.methods.closed_form.solved import WIDEST, SolvedLearner
from prol.methods.closed_form.solvers import SolvedHead, lda
from prol.options import Count, Positive
from prol.state import State


@dataclass(frozen=True)
class RanDumbOptions(TaskOptions, InputOptions):
    """Options of RanDumb."""

    features: Count = 10_000
    """How many random features."""
    gamma: Positive | Literal["auto"] = "auto"
    """Width of the kernel exp(-gamma |x - x'|²) that the random features approximate; by default 1 / (D v), v the
    variance of the entries of the first chunk's features."""
    priors: bool = True
    """Whether class priors follow the number of samples seen."""
    memory: Memory = "statistics"
    """What is fitted: statistics of the whole stream, of the current task only (none), that and so many stored features
    of each older class (a number), or all features (all)."""
    accumulate: Literal["float64", "float32"] = "float64"
    """Number type of the statistics; float32 halves their size."""


class RanDumb(SolvedLearner):
    """Adds up the second moments of φ = √(2/M) cos(√(2γ) hΩ + b), Ω and b random; the classifier is LDA.

    It is solved for predictions. With the default `memory` no sample and no feature of one is stored.
    """

    name: ClassVar[str] = "randumb"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Prabhu et al., RanDumb: Random Representations Outperform Online CL, NeurIPS 2024"
    uses_tasks: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    Options: ClassVar[type] = RanDumbOptions
    options: RanDumbOptions
    clock: TaskClock

    def build(self, state: State) -> None:
        o = self.options
        self.clock = TaskClock.declared(state, o.task_min_classes, o.task_min_steps)
        accumulate = torch.float64 if o.accumulate == "float64" else torch.float32
        self.recollection = Recollection(state, o.memory, self.backbone, o.features, accumulate, twin=False)
        self.gamma = None if o.gamma == "auto" else o.gamma
        state.value("gamma", self, agree="gamma")
        state.trace(removed=GAMMA_STAYS if o.gamma == "auto" else "")
        self.layer = RandomLayer(state, self.seed, self._draw)
        state.solves(o.features + 1, torch.float64)

    def _draw(self, random: torch.Generator) -> dict[str, Tensor]:
        b, features = self.backbone, self.options.features
        weight = normal((b.width, features), random, b.device, b.dtype)
        return {"weight": weight, "phase": uniform((features,), 0, 2 * math.pi, random, b.device, b.dtype)}

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        if self.gamma is None:  # never changed: statistics under another gamma could not be added to these
            self.gamma = gamma_by_variance(encoded)
        if self.clock.steps == 0:  # only now: until a task's first chunk, the last task's classifier predicts
            self.recollection.begin_task()
        self.recollection.add(encoded, rows, self.clock.number, self.embed, self.random)
        self.clock.steps += 1

    def subtract(self, encoded: Tensor, rows: Tensor) -> tuple[str, ...]:
        self.recollection.take_out(encoded, rows, self.embed)
        return (GAMMA_STAYS,) if self.options.gamma == "auto" else ()

    def embed(self, encoded: Tensor) -> Tensor:
        gamma = 1.0 if self.gamma is None else self.gamma
        return fourier_features(encoded, self.layer["weight"], self.layer["phase"], gamma)

    def familiar(self) -> Totals | None:
        """Moments of the first random features: one is as good as another."""
        return self.recollection.leading_totals(self.clock.number, self.embed, WIDEST)

    def solve(self) -> SolvedHead:
        totals, _ = self.recollection.totals(self.clock.number, self.embed)
        return SolvedHead(*lda(totals, priors=self.options.priors), totals.counts > 0)

    def exemptions(self) -> dict[str, str]:
        return self.recollection.exemptions()

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:  # noqa: ARG002
        """Parameters as PROL's paper counted them, though no such head exists."""
        width = self.backbone.width
        head = classes * (width + 1)
        return {
            "the random matrix and a linear head on the backbone's own feature": width * self.options.features + head
        }


GAMMA_STAYS = "gamma was chosen on the first chunk, and stays"
