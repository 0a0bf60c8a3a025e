"""ConvPrompt without text descriptors: a few convolutional prompt generators for each task."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones import Backbone, Pixels, ViT, evaluation_input, require_vit
from prol.class_rows import AGAINST_IT, KEPT_ROW, TASK_HEADS, Contents
from prol.engine.adam import Adam, Part
from prol.engine.captured import FrozenPass
from prol.engine.heads import TaskHeads
from prol.engine.losses import allowed_classes, masked_cross_entropy
from prol.engine.step import FastStep, Kept
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.gradient import SteppedLearner
from prol.methods.prompts.conv_prompts import ConvPrompts, generators_by_likeness
from prol.methods.prompts.training import PromptOptions, descend, head_parts
from prol.parts.packing import packed, unpacked
from prol.parts.rows import RowTable


@dataclass(frozen=True)
class ConvPromptOptions(PromptOptions):
    """Dials of ConvPrompt."""

    lr: float = 0.05
    clip: float | None = None
    blocks: int = 5
    """Prompted blocks, counted from the first."""
    length: int = 5
    generators: Literal["constant", "auto"] = "constant"
    """How many generators a task gets: by `schedule`, or by how unlike its classes are to those before."""
    schedule: str = "5,2"
    """Generators of the first, second, ... task; the last number holds for all later ones. auto reads the first."""
    auto_chunks: int = 5
    """Chunks of a task that auto looks at before it adds generators."""
    drift: float = 0.01
    """Weight of the distance (sum of absolute values) that base maps and matcher move within a task."""
    train_keys: bool = False
    """The published code never trains keys, by an oversight."""
    norm_lr_factor: float = 0.005
    """Rate of the backbone's LayerNorms from the second task on, as a share of lr."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_at_least(0, "blocks")
        self.require_at_least(1, "length", "auto_chunks")
        self.require_weights("drift", "norm_lr_factor")
        numbers = self.schedule.split(",")
        if not all(number.strip().isdecimal() for number in numbers) or int(numbers[0]) < 1:
            raise ValueError(
                f"schedule={self.schedule!r} is not valid: write whole numbers with commas, as 5,2, the first not 0"
            )

    def scheduled(self, task: int) -> int:
        """Generators of a task, counted from 0, by the schedule."""
        numbers = [int(number) for number in self.schedule.split(",")]
        return numbers[min(task, len(numbers) - 1)]


class ConvPrompt(SteppedLearner):
    """Prefixes are mixtures of what small convolutions make of maps that all tasks share.

    The weights of a mixture come from the class token that enters a block, so no second pass is needed. Each task adds
    generators and a head and freezes the old ones; the backbone's LayerNorms are trained, slowly after the first task.
    """

    name: ClassVar[str] = "convprompt"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = (
        "Roy et al., Convolutional Prompting meets Language Models for Continual Learning, CVPR 2024; no descriptors"
    )
    Options: ClassVar[type] = ConvPromptOptions
    only_grow: ClassVar[tuple[str, ...]] = ("head/weight", "head/bias")
    options: ConvPromptOptions
    backbone: ViT

    def __init__(self, backbone: Backbone, options: ConvPromptOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        o, device, dtype, width = options, backbone.device, backbone.dtype, backbone.width
        vit = require_vit(self.name, backbone, o.blocks)
        self.preprocessing = backbone.preprocessing.overridden(o.input_range, o.crop_pct)
        self.working = vit.fork("norms")
        self._look = FrozenPass(vit.features, vit.acceleration.captured)
        self.source = ConvPrompts(width, vit.heads, o.blocks, o.length, self.random, device, dtype)
        self.heads = TaskHeads(width, device, dtype)
        # What auto looks at; without it the tables stay empty.
        self.sums = RowTable((width,), device, torch.float64)
        self.counts = RowTable((), device, torch.float64)
        self.adam = Adam(backbone.device)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self._take_step = FastStep(self._one_step, self._see, vit.acceleration.captured, options.lr)

    # Classes and tasks

    def _start_task(self) -> None:
        self.clock.begin(len(self.classes))
        self.adam.reset()
        self.heads.begin_head()
        self.source.begin_task(first=self.clock.number == 0)
        if self.clock.number == 0 or self.options.generators == "constant":
            self.source.add_generators(self.options.scheduled(self.clock.number), self.random)

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.heads.append(len(names), self.random)
        if self.options.generators == "auto":
            self.sums.append(torch.zeros(len(names), self.backbone.width))
            self.counts.append(torch.zeros(len(names)))

    # One step

    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        staged = Kept(self._staged(pixels))
        self._step(staged, rows)
        if self.options.generators == "auto":
            self._look_at(self._rendered(*staged.made), rows)

    def _layout(self) -> tuple[Hashable, ...]:
        return (*super()._layout(), self.source.keys.count, self.adam.moves)

    def _one_step(self, inputs: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        with torch.no_grad():
            tokens = self.backbone.embed(inputs)
        parts = self._parts()
        feature = self.working.encode(tokens, additions=self.source.additions(parts)).feature
        logits = self.heads.logits(feature, head_parts(parts))
        allowed = allowed_classes(o.mask, rows, self.clock.first_row, len(self.classes))
        values = {"ce": masked_cross_entropy(logits, rows, allowed), "drift": self.source.drift(parts)}
        values["total"] = values["ce"] + o.drift * values["drift"]
        generators = torch.full((), self.source.keys.count, dtype=torch.float64, device=rows.device)
        return descend(values, parts, self.adam, o, 1.0 if self.clock.number == 0 else o.norm_lr_factor) | {
            "generators": generators
        }

    def _parts(self) -> dict[str, Part]:
        """What the current task trains: shared maps and matcher, its generators, its head, and the LayerNorms."""
        parts = self.source.trained(self.options.train_keys)
        parts |= {f"head.{name}": part for name, part in self.heads.trained().items()}
        return parts | {f"norm.{name}": Part(p.data, p) for name, p in self.working.trained().items()}

    @torch.no_grad()
    def _look_at(self, inputs: Tensor, rows: Tensor) -> None:
        """Keeps class means of the untouched network's features, and adds the task's generators when it is time."""
        self.sums.rows.index_add_(0, rows, self._look(inputs).double())
        self.counts.rows.index_add_(0, rows, torch.ones_like(rows, dtype=torch.float64))
        if self.clock.number > 0 and self.clock.steps == self.options.auto_chunks:
            most, first_row = self.options.scheduled(0), self.clock.first_row
            count = generators_by_likeness(self.sums.rows, self.counts.rows, first_row, most)
            self.source.add_generators(count, self.random)

    # Answering, saving, counting

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:  # noqa: ARG002
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        tokens = self.backbone.embed(inputs)
        feature = self.working.encode(tokens, additions=self.source.additions()).feature
        return self.heads.logits(feature)

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        mixed = "the generators of its task, the maps and the LayerNorms that all share were trained with it"
        firsts = self.heads.first_rows
        return Contents(
            {**TASK_HEADS, "seen/*": "sum"},
            statistics=("seen/*",),
            traces=(AGAINST_IT, mixed),
            merged=(KEPT_ROW, mixed),
            first_moment=firsts[-1] if firsts else 0,
        )

    def footprint(self) -> Footprint:
        trained = []
        if self.heads.first_rows:
            others = [part.leaf for name, part in self._parts().items() if not name.startswith("head.")]
            trained = [*self.heads.live_tensors(), *others]
        heads = [table.rows for table in self.heads.tables().values()]
        stored = Amount.of(*self.source.tensors().values(), *heads, *self.working.trained().values())
        return Footprint(Amount.of(*trained), stored, Amount.of(self.sums.rows, self.counts.rows), Amount(0, 0))

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:
        """Nothing for auto, where the number of generators depends on the images."""
        o, width = self.options, self.backbone.width
        if o.generators == "auto":
            return {}
        shared = Amount.of(*self.source.shared.values(), *self.working.trained().values()).count
        generator = sum(table.rows.shape[1:].numel() for table in (self.source.weight, self.source.bias))
        generators = generator * sum(o.scheduled(task) for task in range(tasks))
        keys = tasks * o.scheduled(0) * (width // 4)
        total = shared + generators + keys + classes * (width + 1)
        return {"keys for as many generators in every task as in the first, heads without their LayerNorms": total}

    def _state(self) -> State:
        moments, adam = self.adam.state()
        tensors = packed(
            source=self.source.tensors(),
            head={name: table.rows for name, table in self.heads.tables().items()},
            norm=self.working.trained(),
            seen={"sums": self.sums.rows, "counts": self.counts.rows},
            adam=moments,
        )
        meta = {"adam": adam, "clock": asdict(self.clock), "first_rows": list(self.heads.first_rows)}
        return tensors, meta | {"frozen": self.source.frozen, "last": dict(self.report())}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.source.load(unpacked("source", tensors), meta["frozen"])
        self.heads.load(unpacked("head", tensors), meta["first_rows"])
        with torch.no_grad():
            for name, tensor in unpacked("norm", tensors).items():
                self.working.trained()[name].copy_(tensor)
        self.sums.replace(tensors["seen/sums"])
        self.counts.replace(tensors["seen/counts"])
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.clock = TaskClock(**meta["clock"])
        self._take_step.restore(meta["last"])
