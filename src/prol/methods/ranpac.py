"""RanPAC: a random projection, and ridge regression from accumulated statistics."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
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
from prol.parts.first_task import FirstTask, head_tables
from prol.parts.frozen_pass import FrozenPass
from prol.parts.inputs import require_not_augmented, require_nothing_drawn, training_input
from prol.parts.packing import packed, unpacked
from prol.parts.random_features import normal, own_generator, relu_features
from prol.parts.solvers import SolvedHead, choose_ridge, lda, ridge
from prol.parts.tasks import TaskClock
from prol.sums import Sums, fingerprint

SETTLED_AFTER = 500
"""Samples on which a ridge strength may be settled; shorter first tasks are left to those behind them."""


@dataclass(frozen=True)
class RanPACOptions:
    """Dials of RanPAC."""

    features: int | None = 10_000
    """How many random features; with none, the backbone's feature itself is classified."""
    classifier: Literal["ridge", "lda"] = "ridge"
    """The rows of PROL's paper were fitted by LDA."""
    ridge: float | Literal["auto"] = "auto"
    """Strength of the penalty; by default the one with the least error on every fifth sample of the first task."""
    memory: Memory = "statistics"
    """What is fitted: statistics of the whole stream, of the current task only (none), that and so many kept features
    of each older class (a number), or all features (all)."""
    adapt: Literal["none", "norms"] = "none"
    """Whether the LayerNorms are tuned in the first task."""
    adapt_lr: float = 0.002
    accumulate: Literal["float64", "float32"] = "float64"
    """Number type of the statistics; float32 halves their size, and loses the small ridge strengths to rounding."""
    augment: Augment = "none"
    input_range: InputRange = "backbone"
    crop_pct: float | None = None
    task_min_classes: int = 2
    task_min_steps: int = 50

    def __post_init__(self) -> None:
        require_memory(self.memory)
        for name in ("features", "task_min_classes", "task_min_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        for name in ("ridge", "adapt_lr"):
            value = getattr(self, name)
            if value != "auto" and not 0 < value < float("inf"):
                raise ValueError(f"{name} must be a finite number above 0, got {value}")


class RanPAC(TaskLearner):
    """Adds up the second moments of φ = max(0, hW), W random; scores are φ (G + λI)⁻¹ S, solved when asked.

    With the default `memory` no sample and no feature of one is kept, and the order of the stream does not matter.
    """

    name: ClassVar[str] = "ranpac"
    family: ClassVar[str] = "closed form"
    citation: ClassVar[str] = "McDonnell et al., RanPAC: Random Projections and Pre-trained Models, NeurIPS 2023"
    fixed: ClassVar[Literal["nothing", "part", "all"]] = "all"
    Options: ClassVar[type] = RanPACOptions
    options: RanPACOptions

    def __init__(self, backbone: Backbone, options: RanPACOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        o = options
        self.preprocessing = backbone.preprocessing.overridden(o.input_range, o.crop_pct)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self.embedded = backbone.width if o.features is None else o.features
        self.recollection = Recollection(
            o.memory,
            backbone.width,
            self.embedded,
            backbone.device,
            backbone.dtype,
            accumulate=torch.float64 if o.accumulate == "float64" else torch.float32,
            twin=o.classifier == "ridge" and o.ridge == "auto",
        )
        self.first_task = FirstTask(backbone, o.adapt_lr) if o.adapt == "norms" else None
        if self.first_task is not None:  # what is said of the class holds for a network that does not change
            self.fixed = "nothing"  # type: ignore[misc]
            self.can_diverge = True  # type: ignore[misc]
        self._look = FrozenPass(self._network().features, backbone.acceleration.captured)
        self._draw(seed)
        self.strength = None if o.ridge == "auto" else o.ridge
        self._solved: SolvedHead | None = None
        self._distance = LatestDistance()
        self._last: dict[str, float] = {}

    def _draw(self, seed: int) -> None:
        b, self.drawn_from = self.backbone, seed
        self.weight: Tensor | None = None
        if self.options.features is not None:
            shape = (b.width, self.embedded)
            self.weight = normal(shape, own_generator(seed), b.device, b.dtype).div_(b.width**0.5)

    # Classes and tasks

    def _start_task(self) -> None:
        super()._start_task()
        if self.first_task is not None and self.clock.number == 1:
            self.first_task.end()

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.recollection.add_classes(len(names))
        if self.first_task is not None:
            self.first_task.add_classes(len(names))
        self._solved = None

    # Learning and answering

    @torch.no_grad()
    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        inputs = training_input(pixels, self.preprocessing, self.backbone, self.options.augment, self.random)
        if self.first_task is None or self.first_task.over:
            features, self._last = self._look(inputs), {}
        else:
            features, loss = self.first_task.step(inputs, rows, self.clock.steps)
            self._last = {"adapt": loss}
        if self.clock.steps == 0:  # only now: until a task's first chunk, the last task's classifier answers
            self._settle_strength()
            self.recollection.begin_task()
        self.recollection.add(features, rows, self.clock.number, self._embed, self.random)
        self.clock.steps += 1
        self._solved = None

    def _network(self) -> Backbone:
        return self.backbone if self.first_task is None else self.first_task.network

    def _embed(self, features: Tensor) -> Tensor:
        return features if self.weight is None else relu_features(features, self.weight)

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self._look(evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype))

    def _shared(self, pixels: Pixels) -> Tensor:
        return self._fixed(pixels)

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
            self._solved = self._solve()
        return self._solved

    def _solve(self) -> SolvedHead:
        fit, held = self.recollection.totals(self.clock.number, self._embed)
        whole, bias = fit if held is None else fit + held, None
        if self.options.classifier == "lda":
            weight, bias = lda(whole, priors=True)
        elif self.strength is not None:
            weight = ridge(whole, self.strength)
        else:
            assert held is not None
            weight = ridge(whole, choose_ridge(fit, held))
        return SolvedHead(weight, bias, whole.counts > 0)

    def _settle_strength(self) -> None:
        """The first task decides, as the later it is chosen the more classes there are, and the worse it becomes."""
        enough = self.clock.number > 0 and self.recollection.samples_seen() >= SETTLED_AFTER
        if enough and self.recollection.twin:
            fit, held = self.recollection.totals(0, self._embed)
            assert held is not None
            self.strength = choose_ridge(fit, held)
            self.recollection.merge()

    # Counting, saving, forgetting

    @torch.no_grad()
    def _unlearn(self, pixels: Pixels, rows: Tensor) -> tuple[str, ...]:
        require_not_augmented(self.options.augment)
        if self.first_task is not None:
            raise ValueError("with adapt=norms images cannot be unlearnt: the LayerNorms were tuned on them")
        self.recollection.take_out(self._fixed(pixels), rows, self._embed)
        self._solved = None
        self._distance.forget()
        return self._chosen()

    def contents(self, row: int | None = None) -> Contents:
        tuned = ("the LayerNorms were tuned in the first task, on it if it was there",) if self.first_task else ()
        others = (*self._chosen(), *tuned)
        contents = self.recollection.contents(row, self.options.augment != "none", others, others)
        if self.first_task is None:
            return contents
        return replace(contents, tables={**contents.tables, **head_tables("first_task/")})

    def _chosen(self) -> tuple[str, ...]:
        settled = self.options.ridge == "auto" and self.strength is not None
        return ("the ridge strength was chosen on the first task, and stays",) if settled else ()

    def added_up(self) -> Sums:
        require_nothing_drawn(self.options.augment)
        self.recollection.require_additive()
        agreed: dict[str, Any] = {"seed of the random features": self.drawn_from, "ridge": self.strength}
        if self.first_task is not None:
            if not self.first_task.over:
                raise ValueError("with adapt=norms learners can be merged only after the first task, which tunes them")
            agreed["LayerNorms"] = fingerprint(self.first_task.network.trained())
        numbers = {"seen": self.recollection.samples_seen(), "steps": self.clock.steps}
        return Sums.of(self._state(), **MERGING, numbers=numbers, agreed=agreed)

    def _from_sums(self, sums: Sums, classes: int) -> State:
        return sums.together(), merged_meta(sums, classes)

    def exemptions(self) -> dict[str, str]:
        return self.recollection.exemptions()

    def report(self) -> dict[str, float]:
        return dict(self._last)

    def class_counts(self) -> Tensor | None:
        return self.recollection.class_counts()

    def footprint(self) -> Footprint:
        trained, parameters = Amount(0, 0), [] if self.weight is None else [self.weight]
        columns = self.embedded + (self.options.classifier == "lda")
        parameters.append(torch.empty(len(self.classes), columns, device="meta", dtype=torch.float64))  # the head
        if self.first_task is not None:
            trained = self.first_task.trained_now()
            parameters += self.first_task.network.trained().values()
        kept = self.recollection
        return Footprint(trained, Amount.of(*parameters), kept.statistics_stored(), kept.samples_stored())

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:  # noqa: ARG002
        """Parameters as PROL's paper counted them, though no such head exists."""
        return {"a linear head on the backbone's own feature": classes * (self.backbone.width + 1)}

    def _state(self) -> State:
        kept, recollection = self.recollection.state()
        meta = {"drawn_from": self.drawn_from, "clock": asdict(self.clock), "recollection": recollection}
        meta["strength"] = self.strength
        if self.first_task is None:
            return packed(recollection=kept), meta
        tuned, first_task = self.first_task.state()
        return packed(recollection=kept, first_task=tuned), meta | {"first_task": first_task, "last": self.report()}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.recollection.load_state(unpacked("recollection", tensors), meta["recollection"])
        self.clock, self.strength = TaskClock(**meta["clock"]), meta["strength"]
        if self.first_task is not None:
            self.first_task.load_state(unpacked("first_task", tensors), meta["first_task"])
            self._last = dict(meta["last"])
        if meta["drawn_from"] != self.drawn_from:
            self._draw(meta["drawn_from"])
        self._solved = None
        self._distance.forget()
