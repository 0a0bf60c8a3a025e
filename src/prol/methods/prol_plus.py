"""PROL+: general knowledge learnt once, then each class as a Gaussian solved from sums."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.backbones import Backbone, Pixels, evaluation_input
from prol.class_rows import Contents
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.in_tasks import TaskLearner
from prol.methods.prol_plus_options import PROLPlusOptions, plan
from prol.parts.backbone_kinds import require_vit
from prol.parts.block_features import (
    Scale,
    block_features,
    last_blocks,
    principal_directions,
    require_usable,
    usable,
)
from prol.parts.class_removal import SPREAD, TAKEN, sums_of, take_out_of_moments
from prol.parts.cross_validation import FIRST, STRENGTHS, choose_strength
from prol.parts.familiarity import LatestDistance
from prol.parts.first_task import FirstTask, head_tables
from prol.parts.frozen_pass import FrozenPass
from prol.parts.mean_shrinkage import steadied_lda
from prol.parts.moments import Moments
from prol.parts.own_covariances import ROUNDING, OwnCovariances, OwnTerms
from prol.parts.packing import packed, unpacked
from prol.parts.random_features import cosine_features, normal, own_generator, uniform
from prol.parts.solvers import SolvedHead
from prol.parts.tasks import TaskClock
from prol.sums import Sums, fingerprint

FIRST_CHOICE = 128
"""Samples after which the shrinkage is chosen for the first time; from then on whenever they have doubled."""
ENOUGH = 256
"""Samples after which main directions are fixed: early, since classes have no own covariance before."""


class FirstBlocks(FirstTask):
    """Tunes on the class token as ever, and reads the last blocks in the same pass."""

    def __init__(self, backbone: Backbone, lr: float, blocks: int) -> None:
        super().__init__(backbone, lr)
        self.blocks = blocks

    def look(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        network = require_vit("prol_plus", self.network)
        encoded = network.encode(network.embed(inputs), taps=last_blocks(network, self.blocks))
        return encoded.feature, block_features(encoded)

    def seen(self, inputs: Tensor) -> Tensor:
        """Features of blocks `[B, L]` alone."""
        return self.look(inputs)[1].float()

    def step_and_look(self, inputs: Tensor, rows: Tensor, steps: int, rate: float) -> tuple[Tensor, Tensor, float]:
        """One step: features of blocks before and after it `[B, L]`, and the loss. If it ruins them, it is undone."""
        tensors, meta = self.state()
        kept = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        before, loss = self.step(inputs, rows, steps, rate)
        before, after = before.float(), self.seen(inputs)
        if not (usable(before) and usable(after)):
            self.load_state(kept, meta)
            require_usable(before)
            raise ValueError(
                f"step {steps + 1} of tuning, at the rate {rate:g}, ruins the network's features: "
                "it is undone and the chunk not learnt; lower adapt_lr="
            )
        return before, after, loss


class PROLPlus(TaskLearner):
    """Each class is a Gaussian of block and random features, with a covariance of its own in their main directions.

    In the first task the LayerNorms are tuned for at most `adapt_steps` steps, then never again. From the first chunk
    on moments are added up, from which scores are solved when asked; they are carried along while the network moves.
    """

    name: ClassVar[str] = "prol_plus"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "this library; after PROL (ICCV 2025), RanPAC (2023), streaming LDA (2020), RDA (1989)"
    can_diverge: ClassVar[bool] = True
    Options: ClassVar[type] = PROLPlusOptions
    options: PROLPlusOptions

    def __init__(self, backbone: Backbone, options: PROLPlusOptions, seed: int = 0) -> None:
        network = require_vit(self.name, backbone)
        super().__init__(backbone, options, seed)
        o = options
        self.preprocessing = backbone.preprocessing.overridden(o.input_range, o.crop_pct)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self.widths = plan(o, network.width, network.depth)
        w = self.widths
        self.tuning = FirstBlocks(backbone, o.adapt_lr, w.blocks)
        if o.adapt_steps == 0:
            self.tuning.end()
        self._look = FrozenPass(self.tuning.seen, backbone.acceleration.captured)
        self.scale: Scale | None = None
        self.moments = Moments(w.all, backbone.device, torch.float32, w.stripe)
        self.own = OwnCovariances(w.own, w.own_room, backbone.device, torch.float32) if w.own else None
        self.directions: Tensor | None = None
        self._draw(seed)
        self.seen, self.chosen_at, self.strength = 0, 0, FIRST
        self._solved: tuple[SolvedHead, OwnTerms | None] | None = None
        self._distance = LatestDistance()
        self._last: dict[str, float] = {}

    def _draw(self, seed: int) -> None:
        b, w, self.drawn_from, random = self.backbone, self.widths, seed, own_generator(seed)
        self.weight = normal((w.linear, w.random), random, b.device, torch.float32).mul_(w.linear**-0.5)
        self.phase = uniform((w.random,), 0, 2 * math.pi, random, b.device, torch.float32)

    # Classes and tasks

    def _start_task(self) -> None:
        super()._start_task()
        if self.clock.number == 1:
            self.tuning.end()

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.moments.add_classes(len(names))
        if self.own is not None:
            self.own.add_classes(len(names))
        self.tuning.add_classes(len(names))
        self._solved = None

    # Learning and answering

    @torch.no_grad()
    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        o, told = self.options, {}
        if self.tuning.over:
            blocks = self._look(inputs)
            require_usable(blocks)
            self._take_in(blocks, rows)
        else:
            rate = o.adapt_lr * (1 + math.cos(math.pi * self.clock.steps / o.adapt_steps)) / 2
            blocks, moved, loss = self.tuning.step_and_look(inputs, rows, self.clock.steps, rate)
            taken = self._take_in(blocks, rows)
            if o.carry:
                self._carry_along(taken, moved)
            told = {"adapt": loss, "rate": rate}
        self._choose()
        self._last = told
        self.clock.steps += 1
        if not self.tuning.over and self.clock.steps >= o.adapt_steps:
            self.tuning.end()

    def _take_in(self, blocks: Tensor, rows: Tensor) -> Tensor:
        """Adds up features of blocks `[B, L]`; all features that were made of them `[B, L + M]`."""
        if self.scale is None:
            self.scale = Scale.of(blocks, self.widths.blocks)
        linear = self.scale.apply(blocks)
        embedded = self._embed(linear)
        self.moments.add(embedded, rows)
        coordinates = self._coordinates(linear)
        if self.own is not None and coordinates is not None:
            self.own.add(coordinates, rows)
        self.seen += len(rows)
        self._solved = None
        return embedded

    def _carry_along(self, taken: Tensor, after: Tensor) -> None:
        """A step has moved the network: all that was seen moves as the chunk, `taken` in as `[B, L + M]`, has moved.

        `after` `[B, L]` are its features of blocks as they are now.
        """
        assert self.scale is not None
        self.moments.shift((self._embed(self.scale.apply(after)) - taken).mean(0))

    def _choose(self) -> None:
        """The shrinkage whenever samples have doubled, and once the directions of own covariances."""
        w = self.widths
        choose = self.options.penalty is None and self.seen >= max(FIRST_CHOICE, 2 * self.chosen_at)
        begin = 0 < w.own < w.linear and self.directions is None and self.seen >= ENOUGH
        if choose:
            self.chosen_at = self.seen
        if not (choose or begin):
            return
        # What was taken in stays so: a chunk is not refused for what could not be chosen besides.
        with suppress(ValueError, RuntimeError):
            totals = self.moments.totals()
            if choose:
                self.strength = choose_strength(totals, self.strength)
            if begin:
                self.directions = principal_directions(totals, w.linear, w.own).float()

    def _coordinates(self, linear: Tensor) -> Tensor | None:
        """Linear features `[B, L]` in the directions of own covariances `[B, K]`, if these are known."""
        if self.widths.own == self.widths.linear:
            return linear.flip(1)  # the last blocks first: what is left out for want of room is of the earlier ones
        return None if self.directions is None else linear @ self.directions

    def _embed(self, linear: Tensor) -> Tensor:
        """Features of blocks at one scale `[B, L]` with the random ones `[B, L + M]`."""
        random = cosine_features(linear, self.weight, self.phase, self.options.frequency)
        return torch.cat([linear, random], dim=1)

    def _shared(self, pixels: Pixels) -> Tensor | None:
        """Features of blocks at one scale `[B, L]`, once there is one."""
        if self.scale is None:
            return None
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        return self.scale.apply(self._look(inputs))

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        linear = self._shared(pixels) if fixed is None else fixed
        if linear is None:
            return torch.full((len(pixels), len(self.classes)), -torch.inf, device=self.backbone.device)
        if self._solved is None:
            self._solved = self._solve()
        head, own = self._solved
        scores = head.scores(self._embed(linear))
        coordinates = self._coordinates(linear)
        if own is not None and coordinates is not None:
            own.add_to(scores, coordinates)
        return scores

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor | None:
        """By the last block alone: the others, and the random features, tell no more of it and take longer to solve."""
        end = self.widths.linear
        start = end - end // self.widths.blocks
        distance = self._distance(self.moments.counts.rows, partial(self.moments.part, start, end))
        linear = self._shared(pixels) if fixed is None else fixed
        return None if distance is None or linear is None else distance.familiarity(linear[:, start:])

    def _solve(self) -> tuple[SolvedHead, OwnTerms | None]:
        totals, penalty = self.moments.totals(), self._penalty()
        weight, bias = steadied_lda(totals, penalty, ROUNDING, self.options.draw_in)
        head = SolvedHead(weight.float(), bias.float(), totals.counts > 0)
        if self.own is None or not bool((self.own.table.rows[:, 0] > 1).any()):
            return head, None
        return head, self.own.terms(self.options.trust, penalty)

    def _penalty(self) -> float:
        """What is added to variances, in units of their mean."""
        o = self.options
        return o.ease * STRENGTHS[self.strength] if o.penalty is None else o.penalty

    # Counting, saving, forgetting

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        shared = ["the scale of the features was taken from the first chunk"]
        shared += ["the LayerNorms were tuned in the first task, on it if it was there"] * (
            self.options.adapt_steps > 0
        )
        shared += ["the shrinkage was chosen on all that was seen"] * (self.chosen_at > 0)
        shared += ["the directions of own covariances were chosen on all that was seen"] * (self.directions is not None)
        return Contents(
            {**sums_of("moments/"), "own/products": "sum", **head_tables("tuning/")},
            statistics=("moments/*", "own/*", "scale/*"),
            traces=(SPREAD, *shared),
            merged=tuple(shared),
            take_out=self._take_out,
        )

    def _take_out(self, tensors: dict[str, Tensor], meta: dict[str, Any], row: int) -> str:
        meta["seen"] -= take_out_of_moments(tensors, "moments/", row)
        return TAKEN

    def added_up(self) -> Sums:
        if not self.tuning.over:
            raise ValueError(
                "prol_plus can be merged after its LayerNorms are tuned, not before: adapt_steps=0 tunes none"
            )
        if 0 < self.widths.own < self.widths.linear and self.directions is None:
            raise ValueError(f"prol_plus can be merged once directions of classes are chosen, after {ENOUGH} images")
        tensors, meta = self._state()
        fixed = {name: t for name, t in tensors.items() if not name.startswith(("moments/", "own/products"))}
        agreed = {"seed of the random features": self.drawn_from, "LayerNorms, scale or directions": fingerprint(fixed)}
        if self.options.penalty is None:
            agreed |= {"shrinkage": self.strength, "number of images it was chosen on": self.chosen_at}
        return Sums.of(
            (tensors, meta),
            tables=("moments/sums", "moments/counts", "own/products"),
            totals=("moments/gram.*",),
            numbers={"seen": self.seen, "steps": self.clock.steps},
            agreed=agreed,
            narrowing=() if self.own is None else ("own/products",),
        )

    def _from_sums(self, sums: Sums, classes: int) -> State:
        tensors, meta, seen = sums.together(), dict(sums.rest[1]), sums.numbers["seen"]
        if self.options.penalty is None and seen >= max(FIRST_CHOICE, 2 * meta["chosen_at"]):
            raise ValueError(
                f"prol_plus chooses its shrinkage anew whenever images have doubled, and with {seen} they have since "
                f"{meta['chosen_at']}: one alone would have chosen on the way; give penalty= a number"
            )
        if self.own is not None:
            tensors["own/products"] = tensors["own/products"][:, : self.own.length_for(classes)]
        return tensors, meta | {"seen": seen, "clock": {**meta["clock"], "steps": sums.numbers["steps"]}}

    def report(self) -> dict[str, float]:
        return self._last | {"shrinkage": self._penalty()}

    def class_counts(self) -> Tensor:
        return self.moments.counts.rows

    def footprint(self) -> Footprint:
        head = torch.empty(len(self.classes), self.widths.all + 1, device="meta", dtype=torch.float32)
        fixed = [] if self.scale is None else [self.scale.mean, self.scale.inverse]
        fixed += [] if self.directions is None else [self.directions]
        stored = Amount.of(*self.tuning.network.trained().values(), *fixed, head)
        own = [] if self.own is None else [self.own.table.rows]
        statistics = Amount.of(*self.moments.tensors().values(), *own)
        return Footprint(self.tuning.trained_now(), stored, statistics, Amount(0, 0))

    def _state(self) -> State:
        tuned, tuning = self.tuning.state()
        own = {} if self.own is None else {"products": self.own.table.rows}
        own |= {} if self.directions is None else {"directions": self.directions}
        scale = {} if self.scale is None else {"mean": self.scale.mean, "inverse": self.scale.inverse}
        meta = {"drawn_from": self.drawn_from, "clock": asdict(self.clock), "tuning": tuning, "seen": self.seen}
        meta |= {"chosen_at": self.chosen_at, "strength": self.strength, "last": self._last}
        return packed(tuning=tuned, moments=self.moments.tensors(), own=own, scale=scale), meta

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.tuning.load_state(unpacked("tuning", tensors), meta["tuning"])
        self.moments.load(unpacked("moments", tensors))
        if self.own is not None:
            own = unpacked("own", tensors)
            self.own.load(own["products"])
            self.directions = own.get("directions")
        scale = unpacked("scale", tensors)
        self.scale = Scale(scale["mean"], scale["inverse"]) if scale else None
        self.clock, self.seen = TaskClock(**meta["clock"]), meta["seen"]
        self.chosen_at, self.strength, self._last = meta["chosen_at"], meta["strength"], dict(meta["last"])
        if meta["drawn_from"] != self.drawn_from:
            self._draw(meta["drawn_from"])
        self._solved = None
        self._distance.forget()
