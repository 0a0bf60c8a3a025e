"""MOS: one adapter per task, merged with the earlier ones while it learns, and selected by the prediction itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.base import Pixels
from prol.backbones.blocks import Transformer, require_vit
from prol.engine.heads import LinearHead
from prol.engine.losses import mean_over
from prol.engine.sgd import SGD
from prol.engine.similarity import cosine_to_all
from prol.engine.step import MakeStaged
from prol.methods.adapters.class_statistics import ClassGaussians, Covariance, Prototypes, aligned_head
from prol.methods.adapters.modules import (
    Adapter,
    AdapterOptions,
    TaskModules,
    move_towards,
    require_one_per_task,
    seen_softmax,
)
from prol.methods.gradient import HEAD, GradientLearner, clipped_gradients, leaves, reported, staged_twice, tokens_twice
from prol.options import Count, NotNegative, Repeats, Share
from prol.state import State
from prol.tables import Amount

SHARPNESS = 0.8
"""What inner products are divided by in the regulariser."""
DRAWS = 5
"""Alignment draws this many times `chunk` features per class in each epoch."""


def spread_apart(features: Tensor, means: Tensor, counts: Tensor) -> Tensor:
    """The regulariser: cross entropy of inner products / 0.8 among all rows, each one's target being itself.

    `features` `[B, D]` of the chunk, `means` `[M, D]` of earlier classes and which of them count, bool `[M]`.
    """
    everything = torch.cat([torch.where(counts.unsqueeze(1), means, 0).to(features), features])
    counts = torch.cat([counts, counts.new_ones(len(features))])
    products = (everything @ everything.T / SHARPNESS).masked_fill(~counts, -torch.inf)
    itself = torch.arange(len(everything), device=features.device)
    return mean_over(F.cross_entropy(products, itself, reduction="none"), counts)


@dataclass(frozen=True)
class MOSOptions(AdapterOptions):
    """Options of MOS."""

    bottleneck: Count = 16
    """Width of an adapter's hidden layer."""
    scale: NotNegative = 0.1
    """Weight of an adapter's output beside the MLP."""
    merge: Share = 0.1
    """Share of the earlier adapters' mean that is merged into the current one after each step."""
    reg: NotNegative = 0.1
    """Weight of the term that pushes features apart."""
    head_lr_factor: NotNegative = 0.1
    """Learning rate of the head as a share of lr."""
    weight_decay: NotNegative = 5e-4
    """Weight decay of the adapter; the head has none, or rows of classes without samples would shrink."""
    rounds: Repeats = 4
    """Maximum number of times a prediction may select the adapter again."""
    alignment: bool = True
    """Whether the head is trained again on features drawn from the class Gaussians when a task ends."""
    align_when: Literal["asked", "task_end"] = "asked"
    """Which head predicts: the one that would result if the task ended now (asked), or the head as it is (task_end)."""
    align_epochs: Repeats = 30
    """Epochs of this training of the head."""
    align_lr: NotNegative = 0.005
    """Learning rate of this training of the head."""
    covariance: Covariance = "diagonal"
    """Covariance of each class's Gaussian: its D variances (diagonal), or all D x D numbers (full)."""


class MOS(GradientLearner):
    """A linear head over task adapters that are merged in training; the prediction itself selects the adapter."""

    name: ClassVar[str] = "mos"
    family: ClassVar[str] = "adapters"
    citation: ClassVar[str] = "Sun et al., MOS: Model Surgery for Pre-Trained Class-Incremental Learning, AAAI 2025"
    needs_blocks: ClassVar[bool] = True
    Options: ClassVar[type] = MOSOptions
    options: MOSOptions
    backbone: Transformer

    def build(self, state: State) -> None:
        vit, o = require_vit(self.name, self.backbone), self.options
        adapter = Adapter(vit.width, vit.depth, o.bottleneck, o.scale)
        self.adapters = TaskModules(state.scope("adapters"), vit, adapter)
        self.head = LinearHead(state.scope("head"), vit.width, vit.dtype)
        self.prototypes = Prototypes(state.scope("prototypes"), vit.width)
        covariance = o.covariance if o.alignment else "diagonal"  # the regulariser alone needs means only
        self.gaussians = ClassGaussians(state.scope("gaussians"), vit.width, covariance, vit.dtype)
        self.sgd = SGD(state, HEAD)
        self.first_rows: list[int] = []
        self.align_seed = 0
        state.value("first_rows", self, is_row=True)
        state.value("align_seed", self)
        self._earlier: dict[str, Tensor] = {}
        state.on_load(self._average_earlier)
        self.train_with(state, "the adapters, which are merged with each other, were trained with it")

    # Classes and tasks

    def end_task(self) -> None:
        if self._may_align():
            aligned = self.latest(self._aligned_head)
            self.stored.overwrites("head")
            for table, rows in zip(self.head.tables().values(), aligned, strict=True):
                table.replace(rows)

    def start_task(self) -> None:
        self.sgd.reset()
        self.adapters.append(self.adapters.of(-1) if self.adapters.count else self.adapters.module.draw(self.random))
        self.first_rows = [*self.first_rows, len(self.classes)]
        self.align_seed = int(torch.randint(2**62, (), generator=self.random))
        self._average_earlier()

    def _average_earlier(self) -> None:
        require_one_per_task(self.adapters, self.first_rows)
        self._earlier = self.adapters.mean_of_earlier() if self.adapters.count > 1 else {}

    # One step

    def staged(self, pixels: Pixels) -> MakeStaged:
        return partial(staged_twice, self, super().staged(pixels), pixels)

    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        return tokens_twice(self, self.backbone, staged)

    def one_step(self, tokens: Tensor, plain: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o, adapter, head = self.options, self.adapters.trained(), self.head.trained()
        parts = adapter | {f"head.{name}": part for name, part in head.items()}
        features = self.adapters.features(tokens, leaves(adapter))
        ce = self.class_loss(self.head.logits(features, head), rows, o.mask)
        reg = spread_apart(features, *self._other_means(rows))
        total = ce + o.reg * reg
        valid = total.detach().isfinite()
        gradients = clipped_gradients(total, parts, o.clip)
        self._take_statistics(plain, rows, valid)
        for name, part in parts.items():
            rate, decay = (o.rate, o.weight_decay) if name in adapter else (o.rate * o.head_lr_factor, 0.0)
            self.sgd.update(name, part, gradients[name], rate, decay, valid)
        if self._earlier:
            move_towards(self.adapters.of(-1), self._earlier, valid.double() * o.merge)
        return reported({"ce": ce, "reg": reg, "total": total}, o)

    def _other_means(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Means `[M, D]` of earlier tasks' classes, and which count: not a sample's own class, nor one never seen."""
        others = self.gaussians.measured().index_fill(0, rows, False)
        return self.gaussians.means.rows[: self.clock.first_row], others[: self.clock.first_row]

    @torch.no_grad()
    def _take_statistics(self, tokens: Tensor, rows: Tensor, valid: Tensor) -> None:
        """Moments of the current adapter's features, and prototypes of the first one's, from unaugmented images."""
        features = self.adapters.features(tokens, self.adapters.of(-1))
        self.gaussians.add(features, rows, valid)
        first = features if self.clock.number == 0 else self.adapters.features(tokens, self.adapters.of(0))
        self.prototypes.add(first, rows, valid)

    # Alignment

    def _may_align(self) -> bool:
        return self.options.alignment and self.clock.number > 0 and self.clock.steps > 0

    def _aligned_head(self) -> tuple[Tensor, Tensor]:
        """The head as it would be if the task ended now; the same whenever it is computed."""
        o = self.options
        return aligned_head(
            self.head.weight.rows,
            self.head.bias.rows,
            self.gaussians,
            epochs=o.align_epochs,
            draws=DRAWS * o.chunk,
            lr=o.align_lr,
            random=torch.Generator().manual_seed(self.align_seed),
        )

    # Predicting

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        tokens, seen = self.backbone.embed(self.evaluation_input(pixels)), self.prototypes.measured()
        cosines = cosine_to_all(self.adapters.features(tokens, self.adapters.of(0)).double(), self.prototypes.means())
        start = cosines.masked_fill(~seen, -torch.inf).argmax(1)
        refined = self._refined(tokens, start, seen)
        return seen_softmax(refined.double(), seen) + seen_softmax(self.adapters.count * cosines, seen)

    def familiarity_of(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        """The cosine to the nearest class mean, with the first task's adapter."""
        tokens = self.backbone.embed(self.evaluation_input(pixels))
        features = self.adapters.features(tokens, self.adapters.of(0)).double()
        cosines = cosine_to_all(features, self.prototypes.means())
        return cosines.masked_fill(~self.prototypes.measured(), -torch.inf).amax(1)

    def _refined(self, tokens: Tensor, start: Tensor, seen: Tensor) -> Tensor:
        """Logits `[B, C]`: each prediction, at first `start` `[B]`, selects the adapter of the next, until it stays."""
        head = self.head.weight.rows, self.head.bias.rows
        if self.options.align_when == "asked" and self._may_align():
            head = self.latest(self._aligned_head)
        ends = torch.tensor(self.first_rows[1:], device=tokens.device)
        task = torch.bucketize(start, ends, right=True)
        if torch.compiler.is_compiling():  # a graph refines all together: what has converged stays the same
            return self._refined_together(tokens, task, head, ends, seen)
        logits = tokens.new_zeros(len(tokens), len(self.classes))
        moving = torch.arange(len(tokens), device=tokens.device)
        for _ in range(self.options.rounds):
            features = self.adapters.features(tokens[moving], self.adapters.of(task[moving]))
            logits[moving] = F.linear(features, *head)
            predicted = logits[moving].masked_fill(~seen, -torch.inf).argmax(1)
            named = torch.bucketize(predicted, ends, right=True)
            moved = named != task[moving]
            task[moving] = named
            moving = moving[moved]
            if not len(moving):
                break
        return logits

    def _refined_together(
        self, tokens: Tensor, task: Tensor, head: tuple[Tensor, Tensor], ends: Tensor, seen: Tensor
    ) -> Tensor:
        for _ in range(self.options.rounds):
            logits = F.linear(self.adapters.features(tokens, self.adapters.of(task)), *head)
            task = torch.bucketize(logits.masked_fill(~seen, -torch.inf).argmax(1), ends, right=True)
        return logits

    def trained_tensors(self) -> list[Tensor]:
        return [*self.adapters.current(), *(rows[self.clock.first_row :] for rows in self.head.tensors())]

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:
        adapter = Amount.of(*self.adapters.module.draw(torch.Generator()).values()).count
        return {"adapters of all tasks and the head": tasks * adapter + classes * (self.backbone.width + 1)}
