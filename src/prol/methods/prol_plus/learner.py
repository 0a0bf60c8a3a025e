"""PROL+: general knowledge learnt once, then each class as a Gaussian solved from sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.backbones.base import Tapped, require_tapped
from prol.backbones.images import Pixels
from prol.backbones.upload import upload
from prol.classes import Tensors
from prol.engine.captured import FrozenPass
from prol.engine.tasks import TaskClock
from prol.learner import Learner
from prol.methods.closed_form.class_removal import SPREAD, TAKEN
from prol.methods.closed_form.cross_validation import FIRST, STRENGTHS, choose_strength
from prol.methods.closed_form.familiarity import RelativeDistance
from prol.methods.closed_form.first_task import FirstTask
from prol.methods.closed_form.moments import Moments
from prol.methods.closed_form.random_features import RandomLayer, cosine_features, normal, uniform
from prol.methods.closed_form.solvers import SolvedHead
from prol.methods.prol_plus.block_features import Scale, principal_directions, require_usable, usable
from prol.methods.prol_plus.class_covariances import ROUNDING, ClassCovariances, ClassTerms
from prol.methods.prol_plus.mean_shrinkage import shrunk_lda
from prol.methods.prol_plus.options import PROLPlusOptions, plan
from prol.state import State

FIRST_CHOICE = 128
"""Samples after which the shrinkage is chosen for the first time; from then on whenever they have doubled."""
ENOUGH = 256
"""Samples after which main directions are fixed: early, since classes have no covariance before."""


class FirstBlocks(FirstTask):
    """Tunes on the pooled feature, and reads the last blocks or stages in the same pass."""

    network: Tapped

    def __init__(self, state: State, backbone: Tapped, lr: float, blocks: int) -> None:
        super().__init__(state, backbone, lr)
        self.blocks = blocks

    def look(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return self.network.tapped(inputs, self.blocks)

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


class PROLPlus(Learner):
    """Each class is a Gaussian of block and random features, with its own covariance in their main directions.

    In the first task the LayerNorms are tuned for at most `adapt_steps` steps, then never again. From the first chunk
    on moments are added up, from which scores are solved for predictions; while the network moves, drift is corrected.
    """

    name: ClassVar[str] = "prol_plus"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "this library; after PROL (ICCV 2025), RanPAC (2023), streaming LDA (2020), RDA (1989)"
    uses_tasks: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    frozen = False
    Options: ClassVar[type] = PROLPlusOptions
    options: PROLPlusOptions
    clock: TaskClock

    def build(self, state: State) -> None:
        b, o = require_tapped(self.name, self.backbone), self.options
        self.clock = TaskClock.declared(state, o.task_min_classes, o.task_min_steps)
        self.widths = w = plan(o, b.tap_widths)
        self.tuning = FirstBlocks(state.scope("tuning"), b, o.adapt_lr, w.blocks)
        if o.adapt_steps == 0:
            self.tuning.end()
        self.look = FrozenPass(self.tuning.seen, b.acceleration.captured)
        self.moments = Moments(state.scope("moments"), w.all, torch.float32, w.stripe)
        state.count_by(self.moments.class_counts)
        self.covariances: ClassCovariances | None = None
        if w.own:
            self.covariances = ClassCovariances(state.scope("own"), w.own, w.own_room, torch.float32)
        self.directions: Tensor | None = None
        words = "directions of class covariances"
        state.optional("own/directions", self, "directions", kind="parameter", agree=words)
        self.scale: Scale | None = None
        state.group("scale", self._read_scale, self._load_scale, kind="parameter", agree="scale of the features")
        self.layer = RandomLayer(state, self.seed, self._draw, stored=False)
        self.seen, self.chosen_at, self.strength = 0, 0, FIRST
        self._last: dict[str, float] = {}
        chosen = self.options.penalty is None
        state.value("seen", self, merge="sum")
        state.value("chosen_at", self, agree="number of images the shrinkage was chosen on" if chosen else "")
        state.value("strength", self, agree="shrinkage" if chosen else "")
        state.value("last", self, "_last")
        state.solves(w.all + 1, torch.float32)
        state.on_merge(self._require_chosen, take=self._merged, narrowing=("own/products",) * (w.own > 0))
        state.on_remove(self._remove_class)
        state.trace(removed=SPREAD)
        state.trace(*["the scale of the features was taken from the first chunk"] * 2)
        state.trace(*["the LayerNorms were tuned in the first task, on it if it was there"] * 2 * (o.adapt_steps > 0))
        for text in (self._shrinkage_trace, self._directions_trace):
            state.trace(removed=text, merged=text)

    def _draw(self, random: torch.Generator) -> dict[str, Tensor]:
        b, w = self.backbone, self.widths
        weight = normal((w.linear, w.random), random, b.device, torch.float32).mul_(w.linear**-0.5)
        return {"weight": weight, "phase": uniform((w.random,), 0, 2 * math.pi, random, b.device, torch.float32)}

    def _read_scale(self) -> dict[str, Tensor]:
        return {} if self.scale is None else {"mean": self.scale.mean, "inverse": self.scale.inverse}

    def _load_scale(self, saved: Mapping[str, Tensor]) -> None:
        self.scale = Scale(saved["mean"], saved["inverse"]) if saved else None

    def start_task(self) -> None:
        if self.clock.number == 1:
            self.tuning.end()

    # Learning

    @torch.no_grad()
    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        rows, inputs = upload(rows, self.backbone.device), self.evaluation_input(pixels)
        o, report = self.options, {}
        if self.tuning.over:
            blocks = self.encode(inputs)
            require_usable(blocks)
            self.update(blocks, rows)
        else:
            rate = o.adapt_lr * (1 + math.cos(math.pi * self.clock.steps / o.adapt_steps)) / 2
            blocks, moved, loss = self.tuning.step_and_look(inputs, rows, self.clock.steps, rate)
            embedded = self._add_up(blocks, rows)
            if o.drift_correction:
                self._correct_drift(embedded, moved)
            report = {"adapt": loss, "rate": rate}
        self._choose()
        self._last = report
        self.clock.steps += 1
        if not self.tuning.over and self.clock.steps >= o.adapt_steps:
            self.tuning.end()

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        self._add_up(encoded, rows)

    def _add_up(self, encoded: Tensor, rows: Tensor) -> Tensor:
        """Adds up features of blocks `[B, L]`; returns all features that were made of them `[B, L + M]`."""
        if self.scale is None:
            self.scale = Scale.of(encoded, self.widths.taps)
        linear = self.scale.apply(encoded)
        embedded = self._embed(linear)
        self.moments.add(embedded, rows)
        coordinates = self._coordinates(linear)
        if self.covariances is not None and coordinates is not None:
            self.covariances.add(coordinates, rows)
        self.seen += len(rows)
        return embedded

    def _correct_drift(self, embedded: Tensor, after: Tensor) -> None:
        """A step has moved the network: all that was seen moves as the chunk, added as `[B, L + M]`, has moved.

        `after` `[B, L]` are its features of blocks as they are now.
        """
        assert self.scale is not None
        self.moments.shift((self._embed(self.scale.apply(after)) - embedded).mean(0))

    def _choose(self) -> None:
        """The shrinkage whenever samples have doubled, and once the directions of class covariances."""
        w = self.widths
        choose = self.options.penalty is None and self.seen >= max(FIRST_CHOICE, 2 * self.chosen_at)
        begin = 0 < w.own < w.linear and self.directions is None and self.seen >= ENOUGH
        if choose:
            self.chosen_at = self.seen
        if not (choose or begin):
            return
        # A chunk that was learnt is not refused because a choice failed.
        with suppress(ValueError, RuntimeError):
            totals = self.moments.totals()
            if choose:
                self.strength = choose_strength(totals, self.strength)
            if begin:
                self.directions = principal_directions(totals, w.linear, w.own).float()

    def _coordinates(self, linear: Tensor) -> Tensor | None:
        """Linear features `[B, L]` in the directions of class covariances `[B, K]`, if these are known."""
        if self.widths.own == self.widths.linear:
            return linear.flip(1)  # the last blocks first: what is dropped for lack of room is of the earlier ones
        return None if self.directions is None else linear @ self.directions

    def _embed(self, linear: Tensor) -> Tensor:
        """Features of blocks at one scale `[B, L]` with the random ones `[B, L + M]`."""
        random = cosine_features(linear, self.layer["weight"], self.layer["phase"], self.options.bandwidth)
        return torch.cat([linear, random], dim=1)

    # Predicting

    def score(self, encoded: Tensor) -> Tensor:
        if self.scale is None:
            return torch.full((len(encoded), len(self.classes)), -torch.inf, device=self.backbone.device)
        linear = self.scale.apply(encoded)
        head, terms = self.latest(self._solve)
        scores = head.scores(self._embed(linear))
        coordinates = self._coordinates(linear)
        if terms is not None and coordinates is not None:
            terms.add_to(scores, coordinates)
        return scores

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:
        if self.scale is None or not bool(self.moments.counts.rows.any()):
            return None
        start = self.widths.linear - self.widths.taps[-1]
        return self.latest(self._distance).familiarity(self.scale.apply(encoded)[:, start:])

    def _distance(self) -> RelativeDistance:
        """By the last block alone: the others, and the random features, add no information and take longer to solve."""
        end = self.widths.linear
        return RelativeDistance.of(self.moments.part(end - self.widths.taps[-1], end))

    def _solve(self) -> tuple[SolvedHead, ClassTerms | None]:
        totals, penalty = self.moments.totals(), self._penalty()
        weight, bias = shrunk_lda(totals, penalty, ROUNDING, self.options.shrink_means)
        head = SolvedHead(weight.float(), bias.float(), totals.counts > 0)
        if self.covariances is None or not bool((self.covariances.table.rows[:, 0] > 1).any()):
            return head, None
        return head, self.covariances.terms(self.options.prior_weight, penalty)

    def _penalty(self) -> float:
        """What is added to variances, in units of their mean."""
        o = self.options
        return o.shrinkage_factor * STRENGTHS[self.strength] if o.penalty is None else o.penalty

    # Removing, merging, counting

    def _shrinkage_trace(self, row: int | None) -> str:  # noqa: ARG002
        return "the shrinkage was chosen on all that was seen" if self.chosen_at > 0 else ""

    def _directions_trace(self, row: int | None) -> str:  # noqa: ARG002
        chosen = self.directions is not None
        return "the directions of class covariances were chosen on all that was seen" if chosen else ""

    def _remove_class(self, tensors: dict[str, Tensor], values: dict[str, Any], row: int) -> str:
        values["seen"] -= self.moments.remove_class(tensors, row)
        return TAKEN

    def _require_chosen(self) -> None:
        if not self.tuning.over:
            raise ValueError(
                "prol_plus can be merged after its LayerNorms are tuned, not before: adapt_steps=0 tunes none"
            )
        if 0 < self.widths.own < self.widths.linear and self.directions is None:
            raise ValueError(f"prol_plus can be merged once directions of classes are chosen, after {ENOUGH} images")

    def _merged(self, tensors: Tensors, values: dict[str, Any], classes: int) -> Tensors:
        seen, chosen_at = values["seen"], values["chosen_at"]
        if self.options.penalty is None and seen >= max(FIRST_CHOICE, 2 * chosen_at):
            raise ValueError(
                f"prol_plus chooses its shrinkage anew whenever images have doubled, and with {seen} they have since "
                f"{chosen_at}: one alone would have chosen on the way; give penalty= a number"
            )
        if self.covariances is not None:
            tensors["own/products"] = tensors["own/products"][:, : self.covariances.length_for(classes)]
        return tensors

    def report(self) -> dict[str, float]:
        return self._last | {"shrinkage": self._penalty()}

    def trained_tensors(self) -> list[Tensor]:
        return self.tuning.trained_tensors()
