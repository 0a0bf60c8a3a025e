"""RanPAC: a random projection, and ridge regression from accumulated statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones.base import Pixels
from prol.learner import InputOptions, TaskClock, TaskOptions
from prol.methods.closed_form.first_task import FirstTask
from prol.methods.closed_form.moments import Totals
from prol.methods.closed_form.random_features import RandomLayer, normal, relu_features
from prol.methods.closed_form.recollection import Memory, Recollection
from prol.methods.closed_form.solved import WIDEST, SolvedLearner
from prol.methods.closed_form.solvers import SolvedHead, choose_ridge, lda, ridge
from prol.options import Count, Positive
from prol.state import State

CHOSEN_AFTER = 500
"""Samples after which the ridge strength is chosen finally; shorter first tasks leave it to later ones."""


@dataclass(frozen=True)
class RanPACOptions(TaskOptions, InputOptions):
    """Options of RanPAC."""

    features: Count | None = 10_000
    """How many random features; with none, the backbone's feature itself is classified."""
    classifier: Literal["ridge", "lda"] = "ridge"
    """How the classifier is solved: ridge regression, or LDA, by which the rows of PROL's paper were fitted."""
    ridge: Positive | Literal["auto"] = "auto"
    """Ridge strength; by default the one with the least error on every fifth sample of the first task."""
    memory: Memory = "statistics"
    """What is fitted: statistics of the whole stream, of the current task only (none), that and so many stored features
    of each older class (a number), or all features (all)."""
    adapt: Literal["none", "norms"] = "none"
    """Whether the LayerNorms are tuned in the first task."""
    adapt_lr: Positive = 0.002
    """Learning rate of this tuning."""
    accumulate: Literal["float64", "float32"] = "float64"
    """Number type of the statistics; float32 halves their size, and loses the small ridge strengths to rounding."""


class RanPAC(SolvedLearner):
    """Adds up the second moments of φ = max(0, hW), W random; scores are φ (G + λI)⁻¹ S, solved for predictions.

    With the default `memory` no sample and no feature of one is stored, and the order of the stream does not matter.
    """

    name: ClassVar[str] = "ranpac"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "McDonnell et al., RanPAC: Random Projections and Pre-trained Models, NeurIPS 2023"
    uses_tasks: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    Options: ClassVar[type] = RanPACOptions
    options: RanPACOptions
    clock: TaskClock

    def build(self, state: State) -> None:
        b, o = self.backbone, self.options
        self.clock = TaskClock.declared(state, o.task_min_classes, o.task_min_steps)
        self.embedded = b.width if o.features is None else o.features
        accumulate = torch.float64 if o.accumulate == "float64" else torch.float32
        twin = o.classifier == "ridge" and o.ridge == "auto"
        self.recollection = Recollection(state, o.memory, b, self.embedded, accumulate, twin)
        self.strength = None if o.ridge == "auto" else o.ridge
        state.value("strength", self, agree="ridge")
        state.trace(removed=self._chosen, merged=self._chosen)
        self.layer = RandomLayer(state, self.seed, self._draw)
        state.solves(self.embedded + (o.classifier == "lda"), torch.float64)
        state.on_merge(self._require_tuned)
        self.first_task, self._last = None, dict[str, float]()
        if o.adapt == "norms":
            self.frozen = False
            self.first_task = FirstTask(state.scope("first_task"), b, o.adapt_lr)
            self.look = b.frozen_pass(self.first_task.network.features)
            state.value("last", self, "_last")
            tuned = "the LayerNorms were tuned in the first task, on it if it was there"
            state.trace(removed=tuned, merged=tuned)

    def _draw(self, random: torch.Generator) -> dict[str, Tensor]:
        b = self.backbone
        if self.options.features is None:
            return {}
        return {"weight": normal((b.width, self.embedded), random, b.device, b.dtype).div_(b.width**0.5)}

    def start_task(self) -> None:
        if self.first_task is not None and self.clock.number == 1:
            self.first_task.end()

    @torch.no_grad()
    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        rows = self.backbone.upload(rows)
        inputs = self.training_input(pixels)
        if self.first_task is None or self.first_task.over:
            features, self._last = self.encode(inputs), {}
        else:
            features, loss = self.first_task.step(inputs, rows, self.clock.steps)
            self._last = {"adapt": loss}
        self.update(features, rows)

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        if self.clock.steps == 0:  # only now: until a task's first chunk, the last task's classifier predicts
            self._choose_strength()
            self.recollection.begin_task()
        self.recollection.add(encoded, rows, self.clock.number, self.embed, self.random)
        self.clock.steps += 1

    def subtract(self, encoded: Tensor, rows: Tensor) -> tuple[str, ...]:
        if self.first_task is not None:
            raise ValueError("with adapt=norms images cannot be unlearnt: the LayerNorms were tuned on them")
        self.recollection.take_out(encoded, rows, self.embed)
        return tuple(filter(None, [self._chosen()]))

    def embed(self, encoded: Tensor) -> Tensor:
        return relu_features(encoded, self.layer["weight"]) if self.layer.tensors else encoded

    def familiar(self) -> Totals | None:
        """Moments of the first random features: one is as good as another."""
        return self.recollection.leading_totals(self.clock.number, self.embed, WIDEST)

    def solve(self) -> SolvedHead:
        fit, held = self.recollection.totals(self.clock.number, self.embed)
        whole, bias = fit if held is None else fit + held, None
        if self.options.classifier == "lda":
            weight, bias = lda(whole, priors=True)
        elif self.strength is not None:
            weight = ridge(whole, self.strength)
        else:
            assert held is not None
            weight = ridge(whole, choose_ridge(fit, held))
        return SolvedHead(weight, bias, whole.counts > 0)

    def _choose_strength(self) -> None:
        """The first task decides: the later it is chosen, the more classes there are, and the worse it becomes."""
        enough = self.clock.number > 0 and self.recollection.samples_seen() >= CHOSEN_AFTER
        if enough and self.recollection.twin:
            fit, held = self.recollection.totals(0, self.embed)
            assert held is not None
            self.strength = choose_ridge(fit, held)
            self.recollection.merge()

    def _chosen(self, row: int | None = None) -> str:  # noqa: ARG002
        chosen = self.options.ridge == "auto" and self.strength is not None
        return "the ridge strength was chosen on the first task, and stays" if chosen else ""

    def _require_tuned(self) -> None:
        if self.first_task is not None and not self.first_task.over:
            raise ValueError("with adapt=norms learners can be merged only after the first task, which tunes them")

    def exemptions(self) -> dict[str, str]:
        return self.recollection.exemptions()

    def report(self) -> dict[str, float]:
        return dict(self._last)

    def trained_tensors(self) -> list[Tensor]:
        return [] if self.first_task is None else self.first_task.trained_tensors()

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:  # noqa: ARG002
        """Parameters as PROL's paper counted them, though no such head exists."""
        return {"a linear head on the backbone's own feature": classes * (self.backbone.width + 1)}
