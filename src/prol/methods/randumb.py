"""RanDumb: random Fourier features, and streaming linear discriminant analysis."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones import Augment, Backbone, InputRange, Pixels, evaluation_input
from prol.class_rows import Contents
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.in_tasks import TaskLearner
from prol.parts.familiarity import WIDEST, LatestDistance
from prol.parts.feature_store import MERGING, Memory, Recollection, merged_meta, require_memory
from prol.parts.frozen_pass import FrozenPass
from prol.parts.inputs import require_not_augmented, require_nothing_drawn, training_input
from prol.parts.packing import packed, unpacked
from prol.parts.random_features import fourier_features, gamma_by_variance, normal, own_generator, uniform
from prol.parts.solvers import SolvedHead, lda
from prol.parts.tasks import TaskClock
from prol.sums import Sums


@dataclass(frozen=True)
class RanDumbOptions:
    """Dials of RanDumb."""

    features: int = 10_000
    """How many random features."""
    gamma: float | Literal["auto"] = "auto"
    """Width of the kernel exp(-gamma |x - x'|²) they stand for; by default 1 / (D v), v the variance of the entries of
    the first chunk's features."""
    priors: bool = True
    """Whether classes of which more was seen are more probable beforehand."""
    memory: Memory = "statistics"
    """What is fitted: statistics of the whole stream, of the current task only (none), that and so many kept features
    of each older class (a number), or all features (all)."""
    accumulate: Literal["float64", "float32"] = "float64"
    """Number type of the statistics; float32 halves their size."""
    augment: Augment = "none"
    input_range: InputRange = "backbone"
    crop_pct: float | None = None
    task_min_classes: int = 2
    task_min_steps: int = 50

    def __post_init__(self) -> None:
        require_memory(self.memory)
        for name in ("features", "task_min_classes", "task_min_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.gamma != "auto" and not 0 < self.gamma < float("inf"):
            raise ValueError(f"gamma must be a finite number above 0, or auto, got {self.gamma}")


class RanDumb(TaskLearner):
    """Adds up the second moments of φ = √(2/M) cos(√(2γ) hΩ + b), Ω and b random; the classifier is LDA.

    It is solved when it is asked. With the default `memory` no sample and no feature of one is kept.
    """

    name: ClassVar[str] = "randumb"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "Prabhu et al., RanDumb: Random Representations Outperform Online CL, NeurIPS 2024"
    fixed = "all"
    Options: ClassVar[type] = RanDumbOptions
    options: RanDumbOptions

    def __init__(self, backbone: Backbone, options: RanDumbOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        o = options
        self.preprocessing = backbone.preprocessing.overridden(o.input_range, o.crop_pct)
        self._look = FrozenPass(backbone.features, backbone.acceleration.captured)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self.recollection = Recollection(
            o.memory,
            backbone.width,
            o.features,
            backbone.device,
            backbone.dtype,
            accumulate=torch.float64 if o.accumulate == "float64" else torch.float32,
            twin=False,
        )
        self.gamma = None if o.gamma == "auto" else o.gamma
        self._draw(seed)
        self._solved: SolvedHead | None = None
        self._distance = LatestDistance()

    def _draw(self, seed: int) -> None:
        b, random, self.drawn_from = self.backbone, own_generator(seed), seed
        self.weight = normal((b.width, self.options.features), random, b.device, b.dtype)
        self.phase = uniform((self.options.features,), 0, 2 * math.pi, random, b.device, b.dtype)

    # Classes and tasks

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.recollection.add_classes(len(names))
        self._solved = None

    # Learning and answering

    @torch.no_grad()
    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        inputs = training_input(pixels, self.preprocessing, self.backbone, self.options.augment, self.random)
        features = self._look(inputs)
        if self.gamma is None:  # for ever: statistics under another gamma could not be added to these
            self.gamma = gamma_by_variance(features)
        if self.clock.steps == 0:  # only now: until a task's first chunk, the last task's classifier answers
            self.recollection.begin_task()
        self.recollection.add(features, rows, self.clock.number, self._embed, self.random)
        self.clock.steps += 1
        self._solved = None

    def _embed(self, features: Tensor) -> Tensor:
        return fourier_features(features, self.weight, self.phase, 1.0 if self.gamma is None else self.gamma)

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self._look(evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype))

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        return self._head().scores(self._embed(self._fixed(pixels) if fixed is None else fixed))

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor | None:
        """By the first of the random features: one is as good as another."""
        kept = self.recollection
        totals = partial(kept.leading_totals, self.clock.number, self._embed, WIDEST)
        distance = self._distance(kept.counts(), totals)
        features = self._fixed(pixels) if fixed is None else fixed
        return None if distance is None else distance.familiarity(self._embed(features))

    def _head(self) -> SolvedHead:
        if self._solved is None:
            totals, _ = self.recollection.totals(self.clock.number, self._embed)
            self._solved = SolvedHead(*lda(totals, priors=self.options.priors), totals.counts > 0)
        return self._solved

    # Counting, saving, forgetting

    @torch.no_grad()
    def _unlearn(self, pixels: Pixels, rows: Tensor) -> tuple[str, ...]:
        require_not_augmented(self.options.augment)
        self.recollection.take_out(self._fixed(pixels), rows, self._embed)
        self._solved = None
        self._distance.forget()
        return self._chosen()

    def contents(self, row: int | None = None) -> Contents:
        return self.recollection.contents(row, self.options.augment != "none", self._chosen())

    def _chosen(self) -> tuple[str, ...]:
        return ("gamma was chosen on the first chunk, and stays",) if self.options.gamma == "auto" else ()

    def added_up(self) -> Sums:
        require_nothing_drawn(self.options.augment)
        self.recollection.require_additive()
        agreed = {"seed of the random features": self.drawn_from, "gamma": self.gamma}
        numbers = {"seen": self.recollection.samples_seen(), "steps": self.clock.steps}
        return Sums.of(self._state(), **MERGING, numbers=numbers, agreed=agreed)

    def _from_sums(self, sums: Sums, classes: int) -> State:
        return sums.together(), merged_meta(sums, classes)

    def exemptions(self) -> dict[str, str]:
        return self.recollection.exemptions()

    def class_counts(self) -> Tensor | None:
        return self.recollection.class_counts()

    def footprint(self) -> Footprint:
        kept, columns = self.recollection, self.options.features + 1
        head = torch.empty(len(self.classes), columns, device="meta", dtype=torch.float64)
        parameters = Amount.of(self.weight, self.phase, head)
        return Footprint(Amount(0, 0), parameters, kept.statistics_stored(), kept.samples_stored())

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:  # noqa: ARG002
        """Parameters as PROL's paper counted them, though no such head exists."""
        width = self.backbone.width
        head = classes * (width + 1)
        return {
            "the random matrix and a linear head on the backbone's own feature": width * self.options.features + head
        }

    def _state(self) -> State:
        kept, recollection = self.recollection.state()
        meta = {"drawn_from": self.drawn_from, "gamma": self.gamma, "clock": asdict(self.clock)}
        return packed(recollection=kept), meta | {"recollection": recollection}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.recollection.load_state(unpacked("recollection", tensors), meta["recollection"])
        self.gamma = meta["gamma"]
        self.clock = TaskClock(**meta["clock"])
        if meta["drawn_from"] != self.drawn_from:
            self._draw(meta["drawn_from"])
        self._solved = None
        self._distance.forget()
