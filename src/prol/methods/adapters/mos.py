"""MOS: one adapter a task, merged with the earlier ones while it learns, and found again at test by the answer."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import Backbone, Pixels, evaluation_input, require_vit
from prol.class_rows import AGAINST_IT, AVERAGED, LINEAR_HEAD, Contents
from prol.engine.adam import part_gradients
from prol.engine.heads import LinearHead
from prol.engine.losses import allowed_classes, clip_together, masked_cross_entropy, mean_over
from prol.engine.sgd import SGD
from prol.engine.similarity import cosine_to_all
from prol.engine.step import FastStep
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.adapters.class_gaussians import ClassGaussians, Covariance, aligned_head, put_gaussians_together
from prol.methods.adapters.modules import Adapter, TaskModules, move_towards
from prol.methods.adapters.prototypes import Prototypes
from prol.methods.adapters.training import AdapterOptions, leaves, seen_softmax
from prol.methods.gradient import StatisticsLearner
from prol.parts.packing import packed, unpacked

SHARPNESS = 0.8
"""What inner products are divided by in the regulariser."""
DRAWS = 5
"""Alignment draws this many times `chunk` features a class in each epoch."""


def spread_apart(features: Tensor, means: Tensor, counts: Tensor) -> Tensor:
    """The regulariser: cross entropy of inner products / 0.8 among all rows, each one's target being itself.

    `features` `[B, D]` of the chunk, `means` `[M, D]` of earlier classes and which of them count, bool `[M]`.
    """
    everything = torch.cat([torch.where(counts.unsqueeze(1), means, 0).to(features), features])
    counts = torch.cat([counts, counts.new_ones(len(features))])
    products = (everything @ everything.T / SHARPNESS).masked_fill(~counts, -torch.inf)
    itself = torch.arange(len(everything), device=features.device)
    return mean_over(F.cross_entropy(products, itself, reduction="none"), counts)


class MOS(StatisticsLearner):
    """A linear head over task adapters that are merged in training; the answer itself says whose adapter to use."""

    name: ClassVar[str] = "mos"
    family: ClassVar[str] = "adapters"
    citation: ClassVar[str] = "Sun et al., MOS: Model Surgery for Pre-Trained Class-Incremental Learning, AAAI 2025"
    Options: ClassVar[type] = MOSOptions
    options: MOSOptions

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
        self._take_step = FastStep(self._one_step, self._see, vit.acceleration.captured, o.lr)

    # Classes and tasks

    def _start_task(self) -> None:
        if self._may_align():
            for table, rows in zip(self.head.tables().values(), self._aligned_head(), strict=True):
                table.replace(rows)
        self._aligned = None
        self.clock.begin(len(self.classes))
        self.sgd.reset()
        self.adapters.append(self.adapters.of(-1) if self.adapters.count else self.adapters.module.draw(self.random))
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
        super()._learn(pixels, rows)
        self._aligned = None

    def _layout(self) -> tuple[Hashable, ...]:
        tables = [*self.adapters.tables.values(), *self.head.tables().values()]
        tables += [*self.prototypes.tables().values(), *self.gaussians.tables().values()]
        moves = tuple(table.moves for table in tables)
        return (*super()._layout(), self.adapters.count, self.sgd.moves, moves)

    def _one_step(self, tokens: Tensor, plain: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o, adapter, head = self.options, self.adapters.trained(), self.head.trained()
        parts = adapter | {f"head.{name}": part for name, part in head.items()}
        features = self._features(tokens, leaves(adapter))
        allowed = allowed_classes(o.mask, rows, self.clock.first_row, len(self.classes))
        ce = masked_cross_entropy(self.head.logits(features, head), rows, allowed)
        reg = spread_apart(features, *self._other_means(rows))
        total = ce + o.reg * reg
        valid = total.detach().isfinite()
        gradients = part_gradients(total, parts)
        if o.clip is not None:
            gradients = clip_together(gradients, o.clip)
        self._take_statistics(plain, rows, valid)
        for name, part in parts.items():
            rate, decay = (o.rate, o.weight_decay) if name in adapter else (o.rate * o.head_lr_factor, 0.0)
            self.sgd.update(name, part, gradients[name], rate, decay, valid)
        if self._earlier:
            move_towards(self.adapters.of(-1), self._earlier, valid.double() * o.merge)
        lr = torch.full((), o.rate, dtype=torch.float64, device=rows.device)
        return {"ce": ce.detach(), "reg": reg.detach(), "total": total.detach(), "lr": lr}

    def _other_means(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Means `[M, D]` of earlier tasks' classes, and which count: not a sample's own class, nor one never seen."""
        others = self.gaussians.measured().index_fill(0, rows, False)
        return self.gaussians.means.rows[: self.clock.first_row], others[: self.clock.first_row]

    @torch.no_grad()
    def _take_statistics(self, tokens: Tensor, rows: Tensor, valid: Tensor) -> None:
        """Moments of the current adapter's features, and prototypes of the first one's, from unaugmented images."""
        features = self._features(tokens, self.adapters.of(-1))
        self.gaussians.add(features, rows, valid)
        first = features if self.clock.number == 0 else self._features(tokens, self.adapters.of(0))
        self.prototypes.add(first, rows, valid)

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

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:  # noqa: ARG002
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        tokens, seen = self.backbone.embed(inputs), self.prototypes.measured()
        cosines = cosine_to_all(self._features(tokens, self.adapters.of(0)).double(), self.prototypes.means())
        start = cosines.masked_fill(~seen, -torch.inf).argmax(1)
        refined = self._refined(tokens, start, seen)
        return seen_softmax(refined.double(), seen) + seen_softmax(self.adapters.count * cosines, seen)

    def _familiarity(self, pixels: Pixels, fixed: Tensor | None) -> Tensor | None:  # noqa: ARG002
        """The cosine to the nearest class mean, with the first task's adapter."""
        seen = self.prototypes.measured()
        if not bool(seen.any()):
            return None
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        features = self._features(self.backbone.embed(inputs), self.adapters.of(0)).double()
        return cosine_to_all(features, self.prototypes.means()[seen]).amax(1)

    def _refined(self, tokens: Tensor, start: Tensor, seen: Tensor) -> Tensor:
        """Logits `[B, C]`: each answer, at first `start` `[B]`, names the adapter of the next, until it stays."""
        head = self.head.weight.rows, self.head.bias.rows
        if self.options.align_when == "asked" and self._may_align():
            head = self._aligned_head()
        ends = torch.tensor(self.first_rows[1:], device=tokens.device)
        task = torch.bucketize(start, ends, right=True)
        if torch.compiler.is_compiling():  # in a graph all go on together: who has settled gives the same answer again
            return self._refined_together(tokens, task, head, ends, seen)
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

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        mixed = "the adapters, which are merged with each other, were trained with it"
        return Contents(
            {**LINEAR_HEAD, "prototypes/*": "sum", "gaussians/*": "keep"},
            statistics=("prototypes/*", "gaussians/*"),
            traces=(AGAINST_IT, mixed),
            merged=(AVERAGED, mixed),
            put_together=put_gaussians_together,
        )

    def _refined_together(
        self, tokens: Tensor, task: Tensor, head: tuple[Tensor, Tensor], ends: Tensor, seen: Tensor
    ) -> Tensor:
        for _ in range(self.options.rounds):
            logits = F.linear(self._features(tokens, self.adapters.of(task)), *head)
            task = torch.bucketize(logits.masked_fill(~seen, -torch.inf).argmax(1), ends, right=True)
        return logits

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
        return tensors, meta | {"last": dict(self.report())}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.adapters.load(unpacked("adapters", tensors))
        self.head.load(unpacked("head", tensors))
        self.prototypes.load(unpacked("prototypes", tensors))
        self.gaussians.load(unpacked("gaussians", tensors))
        self.sgd.load_state(unpacked("sgd", tensors))
        self.clock, self._aligned = TaskClock(**meta["clock"]), None
        self.first_rows, self.align_seed = list(meta["first_rows"]), meta["align_seed"]
        self._remember_earlier()
        self._take_step.restore(meta["last"])


@dataclass(frozen=True)
class MOSOptions(AdapterOptions):
    """Dials of MOS."""

    bottleneck: int = 16
    scale: float = 0.1
    """Weight of an adapter's output beside the MLP."""
    merge: float = 0.1
    """Share of the earlier adapters' mean that the current one takes over after each step."""
    reg: float = 0.1
    """Weight of the term that pushes features apart."""
    head_lr_factor: float = 0.1
    """Rate of the head as a share of lr."""
    weight_decay: float = 5e-4
    """Of the adapter; the head has none, or rows of classes that are not in play would shrink."""
    rounds: int = 4
    """How often at most an answer may choose the adapter anew."""
    alignment: bool = True
    """Trains the head again on features drawn from the class Gaussians when a task ends."""
    align_when: Literal["asked", "task_end"] = "asked"
    """asked: predictions also see the head as it would be if the task ended now; task_end: the head as it is."""
    align_epochs: int = 30
    align_lr: float = 0.005
    covariance: Covariance = "diagonal"
    """diagonal: D numbers a class; full: D x D."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_whole(1, "bottleneck", "rounds", "align_epochs")
        self.require_amount("scale", "reg", "head_lr_factor", "weight_decay", "align_lr")
        self.require_share("merge")
