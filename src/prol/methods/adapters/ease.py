"""EASE: one adapter a task spans a feature space of its own; class means in all of them give the answer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.backbones import Backbone, Pixels, evaluation_input, require_vit
from prol.class_rows import AGAINST_IT, AVERAGED, LINEAR_HEAD, Contents
from prol.engine.adam import part_gradients
from prol.engine.heads import LinearHead
from prol.engine.losses import allowed_classes, clip_together, masked_cross_entropy
from prol.engine.sgd import SGD
from prol.engine.similarity import unit
from prol.engine.step import FastStep, MakeStaged
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.adapters.modules import Adapter, TaskModules
from prol.methods.adapters.prototypes import Prototypes, complete
from prol.methods.adapters.training import AdapterOptions, leaves
from prol.methods.gradient import StatisticsLearner
from prol.parts.packing import packed, unpacked


@dataclass(frozen=True)
class EASEOptions(AdapterOptions):
    """Dials of EASE."""

    bottleneck: int = 64
    scale: float = 0.1
    """Weight of an adapter's output beside the MLP."""
    alpha: float = 0.1
    """Weight of the mean cosine in the feature spaces of other tasks, beside that in the class's own."""
    weight_decay: float = 5e-4
    """Of the adapter; the head has none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_whole(1, "bottleneck")
        self.require_amount("scale", "alpha", "weight_decay")


def subspace_scores(features: Tensor, prototypes: Tensor, filled: Tensor, own: Tensor, alpha: float) -> Tensor:
    """Scores `[B, C]` of features `[T, B, D]` against class means `[T, C, D]`.

    The cosine in a class's own feature space `own` `[C]`, plus alpha times its mean over the other spaces; those not
    `filled`, bool `[T]`, hold no class mean yet and are left out.
    """
    cosines = unit(features) @ unit(prototypes).mT
    home = torch.arange(len(cosines), device=own.device).unsqueeze(1) == own
    other = filled.unsqueeze(1) & ~home
    weight = home + alpha * other / other.sum(0).clamp(min=1)
    return (cosines * weight.unsqueeze(1)).sum(0)


class EASE(StatisticsLearner):
    """Task adapters that are never changed afterwards, and cosine to class means in every adapter's feature space."""

    name: ClassVar[str] = "ease"
    family: ClassVar[str] = "adapters"
    citation: ClassVar[str] = "Zhou et al., Expandable Subspace Ensemble for Class-Incremental Learning, CVPR 2024"
    Options: ClassVar[type] = EASEOptions
    options: EASEOptions

    def __init__(self, backbone: Backbone, options: EASEOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        vit, o = require_vit(self.name, backbone), options
        self.preprocessing = vit.preprocessing.overridden(o.input_range, o.crop_pct)
        self.adapters = TaskModules(Adapter(vit.width, vit.depth, o.bottleneck, o.scale), vit.device, vit.dtype)
        self.prototypes: list[Prototypes] = []
        self.head = LinearHead(vit.width, vit.device, vit.dtype)
        self.sgd = SGD()
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self.first_rows: list[int] = []
        self._take_step = FastStep(self._one_step, self._see, vit.acceleration.captured, o.lr)
        self._completed: tuple[Tensor, Tensor, Tensor] | None = None

    # Classes and tasks

    def _start_task(self) -> None:
        """A fresh adapter with an empty space of its own; the head was only there to train the last one."""
        self.clock.begin(len(self.classes))
        self.sgd.reset()
        self.adapters.append(self.adapters.module.draw(self.random))
        self.first_rows.append(len(self.classes))
        self.head = LinearHead(self.backbone.width, self.backbone.device, self.backbone.dtype)
        self.head.append(len(self.classes), self.random)
        self.prototypes.append(self._empty_space())
        self.prototypes[-1].append(len(self.classes))
        self._completed = None

    def _empty_space(self) -> Prototypes:
        return Prototypes(self.backbone.width, self.backbone.device)

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.head.append(len(names), self.random)
        for space in self.prototypes:
            space.append(len(names))
        self._completed = None

    # One step

    def _step(self, staged: MakeStaged, rows: Tensor) -> None:
        self._completed = None
        super()._step(staged, rows)

    def _layout(self) -> tuple[Hashable, ...]:
        tables = [*self.adapters.tables.values(), *self.head.tables().values()]
        tables += [table for space in self.prototypes for table in space.tables().values()]
        moves = tuple(table.moves for table in tables)
        return (*super()._layout(), self.adapters.count, self.sgd.moves, moves)

    def _one_step(self, tokens: Tensor, plain: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o, adapter, head = self.options, self.adapters.trained(), self.head.trained()
        parts = adapter | {f"head.{name}": part for name, part in head.items()}
        logits = self.head.logits(self._features(tokens, leaves(adapter)), head)
        allowed = allowed_classes(o.mask, rows, self.clock.first_row, len(self.classes))
        loss = masked_cross_entropy(logits, rows, allowed)
        valid = loss.detach().isfinite()
        gradients = part_gradients(loss, parts)
        if o.clip is not None:
            gradients = clip_together(gradients, o.clip)
        with torch.no_grad():
            for space, features in zip(self.prototypes, self._all_features(plain), strict=True):
                space.add(features, rows, valid)
        for name, part in parts.items():
            decay = 0.0 if name.startswith("head.") else o.weight_decay
            self.sgd.update(name, part, gradients[name], o.rate, decay, valid)
        lr = torch.full((), o.rate, dtype=torch.float64, device=rows.device)
        return {"ce": loss.detach(), "total": loss.detach(), "lr": lr}

    def _features(self, tokens: Tensor, adapter: Mapping[str, Tensor]) -> Tensor:
        return self.backbone.encode(tokens, additions=self.adapters.module.additions(adapter)).feature

    def _all_features(self, tokens: Tensor) -> Tensor:
        """Features in every task's space, `[T, B, D]`."""
        return torch.stack([self._features(tokens, self.adapters.of(task)) for task in range(self.adapters.count)])

    # Answering, saving, counting

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:  # noqa: ARG002
        everywhere, measured, own = self._means()
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        features = self._all_features(self.backbone.embed(inputs)).double()
        scores = subspace_scores(features, everywhere, measured.any(1), own, self.options.alpha)
        return scores.masked_fill(~measured.any(0), -torch.inf)  # announced, but nothing seen of it yet

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        mixed = "the adapter of its task, and those of later ones if it came again, were trained with it"
        return Contents(
            {**LINEAR_HEAD, "prototypes*/sums": "sum", "prototypes*/counts": "sum"},
            statistics=("prototypes*",),
            traces=(AGAINST_IT, mixed),
            merged=(AVERAGED, mixed),
        )

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor | None:
        if not any(bool(space.measured().any()) for space in self.prototypes):
            return None
        return self._scores(pixels, fixed).amax(1)

    def _means(self) -> tuple[Tensor, Tensor, Tensor]:
        """Class means in every space `[T, C, D]`, which were measured `[T, C]`, and each class's own space `[C]`."""
        if self._completed is None:
            means = torch.stack([space.means() for space in self.prototypes])
            measured = torch.stack([space.measured() for space in self.prototypes])
            rows = torch.arange(len(self.classes), device=means.device)
            own = torch.bucketize(rows, torch.tensor(self.first_rows[1:], device=means.device), right=True)
            self._completed = complete(means, measured, own), measured, own
        return self._completed

    def footprint(self) -> Footprint:
        head, first = [table.rows for table in self.head.tables().values()], self.clock.first_row
        current = self.adapters.of(-1).values() if self.adapters.count else ()
        return Footprint(
            Amount.of(*current, *(rows[first:] for rows in head)),
            Amount.of(*self.adapters.tensors().values(), *head),
            Amount.of(*(tensor for space in self.prototypes for tensor in space.tensors().values())),
            Amount(0, 0),
        )

    def _state(self) -> State:
        spaces = {f"prototypes{task}": space.tensors() for task, space in enumerate(self.prototypes)}
        head = {name: table.rows for name, table in self.head.tables().items()}
        tensors = packed(adapters=self.adapters.tensors(), head=head, sgd=self.sgd.state(), **spaces)
        meta = {"clock": asdict(self.clock), "first_rows": list(self.first_rows), "last": dict(self.report())}
        return tensors, meta

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.adapters.load(unpacked("adapters", tensors))
        self.head.load(unpacked("head", tensors))
        self.sgd.load_state(unpacked("sgd", tensors))
        self.first_rows = list(meta["first_rows"])
        self.prototypes = [self._empty_space() for _ in self.first_rows]
        for task, space in enumerate(self.prototypes):
            space.load(unpacked(f"prototypes{task}", tensors))
        self.clock, self._completed = TaskClock(**meta["clock"]), None
        self._take_step.restore(meta["last"])
