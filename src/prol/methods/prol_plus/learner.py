"""PROL+: normalisation layers tuned once, then a Gaussian classifier solved from sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.backbones.acceleration import FrozenPass, upload
from prol.backbones.base import Pixels, Tapped, require_tapped
from prol.calibration import Observation, observe
from prol.classes import Label
from prol.learner import Learner, TaskClock
from prol.methods.closed_form.first_task import FirstTask
from prol.methods.closed_form.moments import SPREAD, TAKEN, Moments, require_usable, usable
from prol.methods.closed_form.random_features import RandomLayer, cosine_features, normal, uniform
from prol.methods.closed_form.solvers import SolvedHead, class_means
from prol.methods.prol_plus.block_features import Scale
from prol.methods.prol_plus.evidence import EVERY, Evidence
from prol.methods.prol_plus.gaussian import Blend, Familiarity, Gaussian, cosine_weight, prior_temperatures
from prol.methods.prol_plus.last_solved import LastSolved
from prol.methods.prol_plus.options import PROLPlusOptions, plan
from prol.state import State

WARM_UP = 0.25
"""Share of the steps of tuning over which the rate rises: a stream of a few chunks hardly moves the network."""
SURPRISE = 4.0
"""Images of a class that were due since its last one, from which on the class counts as gone."""
GLANCE = 4
"""Of so many chunks one is predicted by the classifier that was solved last."""
MOST_GONE = 0.1
"""Share of all images whose classes may be gone while the network is tuned."""


class FirstBlocks(FirstTask):
    """Tunes on the pooled feature, and reads the last blocks or stages in the same pass."""

    network: Tapped

    def __init__(self, state: State, backbone: Tapped, lr: float, blocks: int, pooled: bool) -> None:
        super().__init__(state, backbone, lr)
        self.frozen, self.blocks, self.pooled = backbone, blocks, pooled
        self.last = state.table("last", dtype=torch.int64, kind="statistic", combine="keep", grows=self._is_tuning)
        width = backbone.width if pooled else backbone.tap_widths[-1]
        self.evidence = Evidence(state.scope("evidence"), width, self._is_tuning)

    def end(self) -> None:
        super().end()
        self.last.truncate(0)
        self.evidence.end()

    def look(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        feature, taps = self.network.tapped(inputs, self.blocks)
        return feature, torch.cat([taps, feature], dim=1) if self.pooled else taps

    def frozen_feature(self, inputs: Tensor) -> Tensor:
        """The frozen network's own feature `[B, P]`, or where it is not read what is read last."""
        return (self.frozen.features(inputs) if self.pooled else self.frozen.tapped(inputs, 1)[1]).float()

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
    """One Gaussian per class, with a common covariance, of features of several blocks and random ones.

    In the first task the normalisation layers are tuned by chunks of several classes, until the first boundary or for
    `adapt_steps` chunks, then never again. From the first chunk on moments are added up, from which scores are solved
    for predictions (`prol_plus.gaussian`); while the network moves, drift is corrected.
    """

    name: ClassVar[str] = "prol_plus"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "this library; after PROL (ICCV 2025), LayUP (2024), RanPAC (2023), streaming LDA (2020)"
    uses_tasks: ClassVar[bool] = True
    additive: ClassVar[bool] = True
    frozen = False
    Options: ClassVar[type] = PROLPlusOptions
    options: PROLPlusOptions
    clock: TaskClock

    def build(self, state: State) -> None:
        b, o = require_tapped(self.name, self.backbone), self.options
        self.clock = TaskClock.declared(state)
        self.widths = w = plan(o, b.tap_widths, b.width)
        self.levels = torch.tensor(w.levels, device=b.device)
        self.tuning = FirstBlocks(state.scope("tuning"), b, o.adapt_lr, w.blocks, w.pooled > 0)
        if o.adapt_steps == 0:
            self.tuning.end()
        self.look = FrozenPass(self.tuning.seen, b.acceleration.captured)
        self.moments = Moments(state.scope("moments"), w.all, torch.float32, w.stripe)
        state.count_by(self.moments.class_counts)
        self.scale: Scale | None = None
        state.group("scale", self._read_scale, self._load_scale, kind="parameter", agree="scale of the features")
        self.layer = RandomLayer(state, self.seed, self._draw, stored=False)
        self.solved = LastSolved(state, w.all)
        self._fresh: SolvedHead | None = None
        self._glanced: Observation | None = None
        self.seen = 0
        self._last: dict[str, float] = {}
        state.value("seen", self, merge="sum")
        state.value("last", self, "_last")
        state.solves(w.all + 1, torch.float32)
        state.on_merge(self._require_tuned)
        state.on_remove(self._remove_class)
        state.trace(removed=SPREAD)
        state.trace(*["the scale of the features was taken from the first chunk"] * 2)
        state.trace(*["the LayerNorms were tuned in the first task, on it if it was there"] * 2 * (o.adapt_steps > 0))

    def _draw(self, random: torch.Generator) -> dict[str, Tensor]:
        b, w = self.backbone, self.widths
        weight = normal((w.linear, w.random), random, b.device, torch.float32).mul_(w.linear**-0.5)
        return {"weight": weight, "phase": uniform((w.random,), 0, 2 * math.pi, random, b.device, torch.float32)}

    def _read_scale(self) -> dict[str, Tensor]:
        return {} if self.scale is None else {"mean": self.scale.mean, "inverse": self.scale.inverse}

    def _load_scale(self, saved: Mapping[str, Tensor]) -> None:
        self.scale = Scale(saved["mean"], saved["inverse"]) if saved else None

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        """Takes over what `state` returned; of version 0.1 all but class covariances, whose room other features had."""
        linear, every = len(tensors.get("scale/mean", ())), tensors["moments/sums"].shape[1]
        if linear and (linear, every) != (self.widths.linear, self.widths.all):
            taps = require_tapped(self.name, self.backbone).tap_widths
            blocks = next((n for n in range(1, len(taps) + 1) if sum(taps[-n:]) == linear), self.options.blocks)
            options = replace(self.options, pooled=False, blocks=blocks, features=every - linear)
            type(self).__init__(self, self.backbone, options, self.seed)
        elif every != self.widths.all:  # nothing was learnt
            empty = type(self)(self.backbone, self.options, self.seed)
            empty.register(meta["classes"])
            sums = ("moments/", "tuning/evidence/")
            moments = {name: t for name, t in empty.state()[0].items() if name.startswith(sums)}
            tensors = {**tensors, **moments}
        tuned = len(tensors["tuning/head/bias"])
        super().load_state({**self._new_since_0_1(tuned, meta["method"]["seen"]), **tensors}, meta)

    def _new_since_0_1(self, tuned: int, seen: int) -> dict[str, Tensor]:
        """What files of version 0.1 lack, for so many classes while it is tuned, after so many images."""
        evidence = {
            "tuning/evidence/sums": torch.zeros(tuned, self.widths.groups[-1]),
            "tuning/evidence/counts": torch.zeros(tuned, dtype=torch.float64),
        }
        return {"tuning/last": torch.full((tuned,), seen), **evidence}

    def arrive(self, names: list[Label], boundary: bool = False) -> None:
        # In a mixed stream some classes come late by chance: no unseen class begins a task.
        self.clock.bounded = True
        super().arrive(names, boundary)

    def start_task(self) -> None:
        if self.clock.number == 1:
            self.tuning.end()

    # Learning

    @torch.no_grad()
    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        rows, inputs = upload(rows, self.backbone.device), self.evaluation_input(pixels)
        if self.tuning.over:
            blocks = self.encode(inputs)
            require_usable(blocks)
            self.update(blocks, rows)
            self._last = {}
        else:
            self._last = self._learn_while_tuning(inputs, rows)
        self.clock.steps += 1
        if not self.tuning.over and self.clock.steps >= self.options.adapt_steps:
            self.tuning.end()

    def _learn_while_tuning(self, inputs: Tensor, rows: Tensor) -> dict[str, float]:
        """One step if it is to be made, and sums of both networks; returns the loss and the rate."""
        o, evidence, report = self.options, self.tuning.evidence, dict[str, float]()
        frozen = self.tuning.frozen_feature(inputs)
        require_usable(frozen)
        after = None
        if evidence.helps() and self._may_tune(rows):
            rate = o.adapt_lr * one_cycle(self.clock.steps / o.adapt_steps)
            blocks, after, loss = self.tuning.step_and_look(inputs, rows, self.clock.steps, rate)
            report = {"adapt": loss, "rate": rate}
        else:
            blocks = self.encode(inputs)
            require_usable(blocks)
        if self.scale is not None and self.clock.steps % EVERY == 0:
            own = self.widths.own
            tuned = self.scale.apply(blocks)[:, own]
            solved = self.moments.part(own.start, own.stop)
            evidence.compare(solved, self._own(frozen), tuned, rows, o.prior_samples)
        embedded = self._add_up(blocks, rows)
        evidence.add(self._own(frozen), rows)
        if after is not None and o.drift_correction:
            self._correct_drift(embedded, after)
        self.tuning.last.rows[rows] = self.seen
        return report

    def _own(self, feature: Tensor) -> Tensor:
        """The network's own feature `[B, P]` at the scale of the first chunk."""
        assert self.scale is not None
        part = self.widths.own
        return (feature - self.scale.mean[part]) * self.scale.inverse[part]

    def _may_tune(self, rows: Tensor) -> bool:
        """Whether a chunk of class rows `[B]` may move the network.

        A chunk of one class does not say what distinguishes it from others. And classes that come no more would be left
        behind: statistics follow the network only as far as the chunk's own images do.
        """
        counts = self.moments.counts.rows
        lost = counts[gone(counts, self.tuning.last.rows, self.seen)].sum()
        return bool((rows != rows[0]).any()) and float(lost) <= MOST_GONE * self.seen

    def update(self, encoded: Tensor, rows: Tensor) -> None:
        self._add_up(encoded, rows)

    def _add_up(self, encoded: Tensor, rows: Tensor) -> Tensor:
        """Adds up features of blocks `[B, L]`; returns all features that were made of them `[B, L + M]`."""
        if self.scale is None:
            self.scale = Scale.of(encoded, self.widths.groups)
        linear = self.scale.apply(encoded)
        embedded = self._embed(linear)
        self._foretell(embedded, rows)
        self.moments.add(embedded, rows)
        self.seen += len(rows)
        return embedded

    # Predicting before learning

    def foresee(self, pixels: Pixels, names: list[Label]) -> Observation | None:
        found = super().foresee(pixels, names)
        self._fresh = None if found is None or cosine_weight(self.seen) else self.latest(self._head)
        return found

    def _foretell(self, embedded: Tensor, rows: Tensor) -> None:
        """The classifier solved last predicts features `[B, L + M]` of class rows `[B]`, unless it was solved for them.

        What is solved for a prediction that somebody asks for is not stored: predicting changes nothing.
        """
        self._glanced = None
        if self._fresh is not None:
            self.solved.replace(self._fresh)
            self._fresh = None
        elif self.clock.steps % GLANCE == 0:
            scores = self.solved.scores(embedded, len(self.classes))
            usual = self.calibration.usual_spread()
            if scores is not None:
                self._glanced = observe(scores, rows, rows >= 0, self.prior_temperatures(), None, usual)

    def glance(self) -> Observation | None:
        return self._glanced

    def _correct_drift(self, embedded: Tensor, after: Tensor) -> None:
        """A step has moved the network: all that was seen moves as the chunk, added as `[B, L + M]`, has moved.

        `after` `[B, L]` are its features of blocks as they are now.
        """
        assert self.scale is not None
        self.moments.shift((self._embed(self.scale.apply(after)) - embedded).mean(0))

    def _embed(self, linear: Tensor) -> Tensor:
        """Features of blocks at one scale `[B, L]` with the random ones `[B, L + M]`."""
        random = cosine_features(linear, self.layer["weight"], self.layer["phase"], self.options.bandwidth)
        return torch.cat([linear, random], dim=1)

    # Predicting

    def score(self, encoded: Tensor) -> Tensor:
        if self.scale is None:
            return torch.full((len(encoded), len(self.classes)), -torch.inf, device=self.backbone.device)
        features = self._embed(self.scale.apply(encoded))
        return self.latest(self._classifier).scores(features, encoded[:, self.widths.own])

    def prior_temperatures(self) -> Tensor:
        return prior_temperatures(self.moments.counts.rows)

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:
        familiarity = self.latest(self._familiarity)
        if self.scale is None or familiarity is None:
            return None
        return familiarity.of_features(self._embed(self.scale.apply(encoded)))

    def _gaussian(self) -> Gaussian:
        return Gaussian.of(self.moments.totals(), self.levels, self.options.prior_samples)

    def _head(self) -> SolvedHead:
        counts = self.moments.counts.rows
        if not bool(counts.any()):  # all that was learnt is removed: rounding is left of it
            return SolvedHead(self.moments.sums.rows.new_zeros(len(counts), self.widths.all), None, counts > 0)
        return self.latest(self._gaussian).head()

    def _classifier(self) -> Blend:
        assert self.scale is not None
        means, part = class_means(self.moments.sums.rows, self.moments.counts.rows), self.widths.own
        own = means[:, part] / self.scale.inverse[part] + self.scale.mean[part]
        return Blend.of(self.latest(self._head), means, own, float(self.moments.counts.rows.sum()))

    def _familiarity(self) -> Familiarity | None:
        if not bool(self.moments.counts.rows.any()):
            return None
        gaussian, totals = self.latest(self._gaussian), self.moments.totals()
        return Familiarity.of(gaussian, totals, self.levels, self.options.prior_samples)

    # Removing, merging, counting

    def subtract(self, encoded: Tensor, rows: Tensor) -> Sequence[str]:
        if not self.tuning.over:
            raise ValueError(
                "prol_plus can unlearn images once its normalisation layers are tuned, after "
                f"{self.options.adapt_steps} chunks or the first task: remove the class, or use adapt_steps=0"
            )
        assert self.scale is not None
        self.moments.add(self._embed(self.scale.apply(encoded)), rows, times=-1)
        self.seen -= len(rows)
        self.solved.clear()
        traces = ["the scale of the features was taken from the first chunk"]
        if self.options.adapt_steps:
            traces += ["the LayerNorms were tuned in the first task; sums hold its images as the network then saw them"]
        return traces

    def _remove_class(self, tensors: dict[str, Tensor], values: dict[str, Any], row: int) -> str:
        values["seen"] -= self.moments.remove_class(tensors, row)
        return TAKEN

    def _require_tuned(self) -> None:
        if not self.tuning.over:
            raise ValueError(
                "prol_plus can be merged after its LayerNorms are tuned, not before: adapt_steps=0 tunes none"
            )

    def report(self) -> dict[str, float]:
        return self._last

    def trained_tensors(self) -> list[Tensor]:
        return self.tuning.trained_tensors()


def gone(counts: Tensor, last: Tensor, seen: int) -> Tensor:
    """Which classes come no more, bool `[C]`: the stream would hardly be without them for so long by chance.

    `counts` `[C]` are the images of each class and `seen` those of all; `last` `[C]` is what `seen` was at the class's
    last one. If it still came as often, the chance of such a gap would be below exp(-`SURPRISE`). A class that came
    once may be a rare one.

    >>> gone(torch.tensor([5.0, 5.0, 1.0]), torch.tensor([90, 40, 10]), 100)
    tensor([False,  True, False])
    """
    return (counts - 1) * (seen - last) > SURPRISE * last


def one_cycle(progress: float) -> float:
    """The share of the largest rate at a share of all steps: up by a line, then down to zero by a cosine.

    >>> [round(one_cycle(progress), 2) for progress in (0.0, 0.125, 0.25, 0.625, 1.0)]
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """
    if progress < WARM_UP:
        return progress / WARM_UP
    return (1 + math.cos(math.pi * (progress - WARM_UP) / (1 - WARM_UP))) / 2
