"""PROL+: normalisation layers tuned once, then a Gaussian classifier solved from sums."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from prol.backbones.base import Pixels, require_tapped
from prol.calibration import Observation, Prior, observe
from prol.classes import Label
from prol.learner import Learner, TaskClock
from prol.methods.closed_form.moments import SPREAD, TAKEN, ClassTotals, Moments, Totals, require_usable
from prol.methods.closed_form.random_features import RandomLayer, cosine_features, normal, uniform
from prol.methods.closed_form.solvers import SolvedHead, class_means
from prol.methods.prol_plus.features import PROLPlusOptions, Scale, plan
from prol.methods.prol_plus.gaussian import Blend, Familiarity, Gaussian, Overall, cosine_weight, working_dtype
from prol.methods.prol_plus.last_solved import LastSolved
from prol.methods.prol_plus.leave_one_out import left_out
from prol.methods.prol_plus.prior_temperature import Usual, prior_temperatures, usual
from prol.methods.prol_plus.tuning import EVERY, FirstBlocks, gone, one_cycle
from prol.state import State

GLANCE = 4
"""Of so many chunks one is predicted by the classifier that was solved last."""
MOST_AHEAD = 1.5
"""Images, in times of those that a covariance was estimated from, up to which it may be taken over."""
MOST_GONE = 0.1
"""Share of all images whose classes may be gone while the network is tuned."""


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
    error_slope: ClassVar[tuple[float, float]] = (0.35, 0.05)
    frozen = False
    Options: ClassVar[type] = PROLPlusOptions
    options: PROLPlusOptions
    clock: TaskClock

    def build(self, state: State) -> None:
        b, o = require_tapped(self.name, self.backbone), self.options
        self.clock = TaskClock.declared(state)
        self.widths = w = plan(o, b.tap_widths, b.width)
        self.levels = torch.tensor(w.levels, device=b.device)
        self.tuning = FirstBlocks(state.scope("tuning"), b, o.adapt_lr, w)
        if o.adapt_steps == 0:
            self.tuning.end()
        self.look = b.frozen_pass(self.tuning.seen)
        self.moments = Moments(state.scope("moments"), w.all, torch.float32, w.stripe)
        state.count_by(self.moments.class_counts)
        self.scale: Scale | None = None
        state.group("scale", self._read_scale, self._load_scale, kind="parameter", agree="scale of the features")
        self.layer = RandomLayer(state, self.seed, self._draw, stored=False)
        self.solved = LastSolved(state, w.all)
        self._glanced: Observation | None = None
        self._learnt: tuple[Tensor, Tensor] | None = None
        self._ahead: tuple[int, ClassTotals, Gaussian, Usual] | None = None
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
        rows, inputs = self.backbone.upload(rows), self.evaluation_input(pixels)
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
        self._glance(embedded, rows)
        self.moments.add(embedded, rows)
        self.seen += len(rows)
        self._learnt = (embedded, rows) if self.calibration.due and not cosine_weight(self.seen) else None
        return embedded

    # Predicting as if a chunk were not learnt

    def foresee(self, pixels: Pixels, names: list[Label]) -> Observation | None:
        return super().foresee(pixels, names) if cosine_weight(self.seen + len(names)) else None

    def hindsight(self) -> Observation | None:
        """Of a due chunk, what each image is predicted without itself: so new classes take part in calibration, too.

        What is solved for a prediction that somebody asks for is not stored: predicting changes nothing.
        """
        learnt, self._learnt = self._learnt, None
        counts = self.moments.counts.rows
        if learnt is None:
            return self._glanced
        features, rows = learnt
        fair = counts[rows] > 1
        if not bool(fair.any()) or int((counts > 0).sum()) < 2:
            return None
        self._latest.clear()
        try:
            near = self._familiarity()
            assert near is not None
            scores, familiarity = left_out(near, self.moments.class_totals(), features, rows)
        except (ValueError, RuntimeError):
            return None
        now = self.latest(self._usual)
        self.solved.replace(self.latest(self._head), now.spread)
        units = prior_temperatures(counts.where(counts < 2, counts - 1))
        spread = now.spread or self.calibration.usual_spread()
        if now.familiarity is None and not self.calibration.standard:
            return observe(scores, rows, fair, units, familiarity, spread)
        found = observe(scores, rows, fair, units, now.standard(familiarity), spread)
        return found and replace(found, standard=True)

    def _glance(self, embedded: Tensor, rows: Tensor) -> None:
        """The classifier solved last predicts features `[B, L + M]` of class rows `[B]`, unless the chunk is due."""
        self._glanced = None
        if not self.calibration.due and self.clock.steps % GLANCE == 0:
            scores = self.solved.scores(embedded, len(self.classes))
            usual = self.solved.spread or self.calibration.usual_spread()
            if scores is not None:
                units = prior_temperatures(self.moments.counts.rows)
                self._glanced = observe(scores, rows, rows >= 0, units, None, usual)

    def _correct_drift(self, embedded: Tensor, after: Tensor) -> None:
        """A step has moved the network: all that was seen moves as the chunk, added as `[B, L + M]`, has moved.

        `after` `[B, L]` are its features of blocks as they are now.
        """
        assert self.scale is not None
        step = (self._embed(self.scale.apply(after)) - embedded).mean(0)
        self.moments.shift(step)
        if self._learnt is not None:
            self._learnt = (embedded + step, self._learnt[1])

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

    def prior_temperature(self) -> Prior:
        found = super().prior_temperature()
        assert found is not None
        now = self.latest(self._usual)
        return Prior(found.unit, now.factor, now.spread)

    def score_familiarity(self, encoded: Tensor) -> Tensor | None:
        familiarity = self.latest(self._familiarity)
        if self.scale is None or familiarity is None:
            return None
        found = familiarity.of_features(self._embed(self.scale.apply(encoded)))
        return self.latest(self._usual).standard(found) if self.calibration.standard else found

    def follow(self, earlier: Self) -> bool:
        """The covariance stays that of an earlier state, of at least two thirds of the images; class means do not."""
        before = earlier.moments.class_totals()
        if not bool(before.counts.any()) or earlier.classes != self.classes[: len(before.counts)]:
            return False
        gaussian, overall = earlier.latest(earlier._gaussian), earlier.latest(earlier._overall)
        if not self._continue(before, gaussian, earlier.latest(earlier._usual)):
            return False
        self._latest["_overall"] = overall
        return True

    def _continue(self, before: ClassTotals, gaussian: Gaussian, usual: Usual) -> bool:
        """Takes over what was solved for the sums `before`, unless the covariance is of too few images by now."""
        now = self.moments.class_totals()
        if float(now.counts.sum()) > MOST_AHEAD * gaussian.samples:
            return False
        self._latest["_gaussian"] = gaussian.with_means(before, now)
        self._latest["_usual"] = usual
        return True

    def predict_ahead(self, pixels: Pixels) -> Tensor:
        """By the covariance solved for an earlier chunk, with the class means of now: solving costs more than all else.

        Predictions that somebody asks for, and calibration, are solved as ever.
        """
        solved, self._latest = self._latest, {}
        try:
            if self._ahead is not None and self._ahead[0] == self.stored.registry.loads:
                self._continue(*self._ahead[1:])
            found = super().predict_ahead(pixels)
            if "_gaussian" in self._latest:
                gaussian, found_usual = self._latest["_gaussian"], self.latest(self._usual)
                self._ahead = self.stored.registry.loads, self.moments.class_totals(), gaussian, found_usual
            return found
        finally:
            self._latest = solved

    def _gaussian(self) -> Gaussian:
        return Gaussian.of(self._totals(), self.levels, self.options.prior_samples)

    def _totals(self) -> Totals:
        counts = self.moments.counts.rows
        return self.moments.totals(working_dtype(float(counts.sum() - counts.count_nonzero())))

    def _usual(self) -> Usual:
        counts = self.moments.counts.rows
        enough = bool(counts.any()) and not cosine_weight(float(counts.sum()))
        return usual(self.latest(self._gaussian), self.moments.class_totals()) if enough else Usual()

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
        return Familiarity.of(self.latest(self._gaussian), self.latest(self._overall))

    def _overall(self) -> Overall:
        gaussian, sums = self.latest(self._gaussian), self.moments.class_totals()
        return Overall.of(gaussian, sums, self._totals, self.levels, self.options.prior_samples)

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
        self._ahead = None
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
