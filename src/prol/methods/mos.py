"""MOS: one adapter a task, merged with the earlier ones while it learns, and found again at test by the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import Backbone, Pixels, ViT, evaluation_input
from prol.labels import Label
from prol.learner import Amount, Footprint, Learner, State
from prol.methods.adapter_training import finite_gradients, leaves, seen_softmax
from prol.methods.mos_options import MOSOptions
from prol.parts.adapters import Adapter, TaskModules, move_towards
from prol.parts.backbone_kinds import require_vit
from prol.parts.class_gaussians import ClassGaussians, aligned_head
from prol.parts.inputs import training_input
from prol.parts.linear_head import LinearHead
from prol.parts.logit_masks import allowed_classes, masked_cross_entropy
from prol.parts.packing import packed, unpacked
from prol.parts.prototypes import Prototypes
from prol.parts.sgd import SGD
from prol.parts.similarity import cosine_to_all
from prol.parts.tasks import TaskClock

SHARPNESS = 0.8
"""What inner products are divided by in the regulariser."""
DRAWS = 5
"""Alignment draws this many times `chunk` features a class in each epoch."""


def spread_apart(features: Tensor, means: Tensor) -> Tensor:
    """The regulariser: cross entropy of inner products / 0.8 among all rows, each one's target being itself.

    `features` `[B, D]` of the chunk, `means` `[M, D]` of earlier classes.
    """
    everything = torch.cat([means.to(features), features])
    products = everything @ everything.T / SHARPNESS
    return F.cross_entropy(products, torch.arange(len(everything), device=features.device))


class MOS(Learner):
    """A linear head over task adapters that are merged in training; the answer itself says whose adapter to use."""

    name: ClassVar[str] = "mos"
    family: ClassVar[str] = "adapters"
    citation: ClassVar[str] = "Sun et al., MOS: Model Surgery for Pre-Trained Class-Incremental Learning, AAAI 2025"
    Options: ClassVar[type] = MOSOptions
    can_diverge: ClassVar[bool] = True
    options: MOSOptions
    backbone: ViT

    def __init__(self, backbone: Backbone, options: MOSOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        vit, o = require_vit(self.name, backbone), options
        self.preprocessing = vit.preprocessing.overridden(o.input_range, o.crop_pct)
        self.adapters = TaskModules(Adapter(vit.width, vit.depth, o.bottleneck, o.scale), vit.device, vit.dtype)
        self.head = LinearHead(vit.width, vit.device, vit.dtype)
        self.prototypes = Prototypes(vit.width, vit.device)
        covariance = o.covariance if o.alignment else "diagonal"  # the regulariser alone needs means only
        self.gaussians = ClassGaussians(vit.width, covariance, vit.device, vit.dtype)
        self.sgd = SGD()
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self.first_rows: list[int] = []
        self.align_seed = 0
        self._earlier: dict[str, Tensor] = {}
        self._aligned: tuple[Tensor, Tensor] | None = None
        self._last: dict[str, float] = {}

    # Classes and tasks

    def _meet(self, names: list[Label]) -> None:
        if self.clock.begins_with_unseen_class(len(self.classes), soft=False):
            self._start_task()
        self._register(names)

    def _begin_task(self, names: list[Label]) -> None:
        if self.clock.begins_at_boundary(len(self.classes)):
            self._start_task()
        self._register(names)

    def _start_task(self) -> None:
        if self._may_align():
            for table, rows in zip(self.head.tables().values(), self._aligned_head(), strict=True):
                table.replace(rows)
        self._aligned = None
        self.clock.begin(len(self.classes))
        self.sgd.reset()
        first = self.clock.number == 0
        self.adapters.append(self.adapters.module.draw(self.random) if first else self.adapters.of(-1))
        self.first_rows.append(len(self.classes))
        self.align_seed = int(torch.randint(2**62, (), generator=self.random))
        self._remember_earlier()

    def _remember_earlier(self) -> None:
        self._earlier = self.adapters.mean_of_earlier() if self.adapters.count > 1 else {}

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self._aligned = None
        self.head.append(len(names), self.random)
        self.prototypes.append(len(names))
        self.gaussians.append(len(names))

    # One step

    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        o = self.options
        inputs = training_input(pixels, self.preprocessing, self.backbone, o.augment, self.random)
        adapter, head = self.adapters.trained(), self.head.trained()
        parts = adapter | {f"head.{name}": part for name, part in head.items()}
        features = self._features(self.backbone.embed(inputs), leaves(adapter))
        allowed = allowed_classes(o.mask, rows, self.clock.first_row, len(self.classes))
        ce = masked_cross_entropy(self.head.logits(features, head), rows, allowed)
        reg = spread_apart(features, self._other_means(rows))
        total = ce + o.reg * reg
        gradients = finite_gradients(total, parts, self.clock.steps, o)
        self._take_statistics(pixels, rows)
        for name, part in parts.items():
            if name.startswith("head."):
                self.sgd.update(name, part, gradients[name], o.rate * o.head_lr_factor)
            else:
                self.sgd.update(name, part, gradients[name], o.rate, o.weight_decay)
        if self._earlier:
            move_towards(self.adapters.of(-1), self._earlier, o.merge)
        self._aligned = None
        self.clock.steps += 1
        values = torch.stack([ce, reg, total]).tolist()  # one wait for the device
        self._last = dict(zip(("ce", "reg", "total"), values, strict=True)) | {"lr": o.rate}

    def _other_means(self, rows: Tensor) -> Tensor:
        """Means `[M, D]` of earlier tasks' classes; features are not pushed away from the mean of their own class."""
        others = self.gaussians.measured()
        others[self.clock.first_row :] = False
        others[rows] = False
        return self.gaussians.means.rows[others]

    @torch.no_grad()
    def _take_statistics(self, pixels: Pixels, rows: Tensor) -> None:
        """Moments of the current adapter's features, and prototypes of the first one's, from unaugmented images."""
        tokens = self.backbone.embed(self._evaluation_input(pixels))
        features = self._features(tokens, self.adapters.of(-1))
        self.gaussians.add(features, rows)
        first = features if self.clock.number == 0 else self._features(tokens, self.adapters.of(0))
        self.prototypes.add(first, rows)

    def _features(self, tokens: Tensor, adapter: Mapping[str, Tensor]) -> Tensor:
        """Class features `[B, D]` with one adapter for all samples, or one for each."""
        return self.backbone.encode(tokens, additions=self.adapters.module.additions(adapter)).feature

    # Alignment

    def _may_align(self) -> bool:
        return self.options.alignment and self.clock.number > 0 and self.clock.steps > 0

    def _aligned_head(self) -> tuple[Tensor, Tensor]:
        """The head as it would be if the task ended now; the same whenever it is asked for."""
        if self._aligned is None:
            o, head = self.options, self.head
            self._aligned = aligned_head(
                head.weight.rows,
                head.bias.rows,
                self.gaussians,
                epochs=o.align_epochs,
                draws=DRAWS * o.chunk,
                lr=o.align_lr,
                random=torch.Generator().manual_seed(self.align_seed),
            )
        return self._aligned

    # Answering, saving, counting

    def _evaluation_input(self, pixels: Pixels) -> Tensor:
        return evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:  # noqa: ARG002
        tokens, seen = self.backbone.embed(self._evaluation_input(pixels)), self.prototypes.measured()
        cosines = cosine_to_all(self._features(tokens, self.adapters.of(0)).double(), self.prototypes.means())
        start = cosines.masked_fill(~seen, -torch.inf).argmax(1)
        refined = self._refined(tokens, start, seen)
        return seen_softmax(refined.double(), seen) + seen_softmax(self.adapters.count * cosines, seen)

    def _refined(self, tokens: Tensor, start: Tensor, seen: Tensor) -> Tensor:
        """Logits `[B, C]`: each answer, at first `start` `[B]`, names the adapter of the next, until it stays."""
        head = self.head.weight.rows, self.head.bias.rows
        if self.options.align_when == "asked" and self._may_align():
            head = self._aligned_head()
        ends = torch.tensor(self.first_rows[1:], device=tokens.device)
        task = torch.bucketize(start, ends, right=True)
        logits = tokens.new_zeros(len(tokens), len(self.classes))
        unsettled = torch.arange(len(tokens), device=tokens.device)
        for _ in range(self.options.rounds):
            features = self._features(tokens[unsettled], self.adapters.of(task[unsettled]))
            logits[unsettled] = F.linear(features, *head)
            answer = logits[unsettled].masked_fill(~seen, -torch.inf).argmax(1)
            named = torch.bucketize(answer, ends, right=True)
            moved = named != task[unsettled]
            task[unsettled] = named
            unsettled = unsettled[moved]
            if not len(unsettled):
                break
        return logits

    def report(self) -> dict[str, float]:
        return dict(self._last)

    def footprint(self) -> Footprint:
        head, first = [table.rows for table in self.head.tables().values()], self.clock.first_row
        current = self.adapters.of(-1).values() if self.adapters.count else ()
        statistics = [table.rows for table in self.gaussians.tables().values()]
        return Footprint(
            Amount.of(*current, *(rows[first:] for rows in head)),
            Amount.of(*self.adapters.tensors().values(), *head),
            Amount.of(*statistics, *self.prototypes.tensors().values()),
            Amount(0, 0),
        )

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:
        adapter = Amount.of(*self.adapters.module.draw(torch.Generator()).values()).count
        return {"adapters of all tasks and the head": tasks * adapter + classes * (self.backbone.width + 1)}

    def _state(self) -> State:
        tensors = packed(
            adapters=self.adapters.tensors(),
            head={name: table.rows for name, table in self.head.tables().items()},
            prototypes=self.prototypes.tensors(),
            gaussians={name: table.rows for name, table in self.gaussians.tables().items()},
            sgd=self.sgd.state(),
        )
        meta = {"clock": asdict(self.clock), "first_rows": list(self.first_rows), "align_seed": self.align_seed}
        return tensors, meta | {"last": self.report()}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        for name, part in (
            ("adapters", self.adapters),
            ("head", self.head),
            ("prototypes", self.prototypes),
            ("gaussians", self.gaussians),
        ):
            part.load(unpacked(name, tensors))
        self.sgd.load_state(unpacked("sgd", tensors))
        self.clock = TaskClock(**meta["clock"])
        self.first_rows, self.align_seed = list(meta["first_rows"]), meta["align_seed"]
        self._last, self._aligned = dict(meta["last"]), None
        self._remember_earlier()
