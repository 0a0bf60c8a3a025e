"""ConvPrompt without text descriptors: a few convolutional prompt generators for each task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones.acceleration import upload
from prol.backbones.base import Pixels
from prol.backbones.blocks import Transformer, require_vit
from prol.engine.adam import Adam, Part
from prol.engine.heads import TaskHeads
from prol.engine.losses import allowed_classes, masked_cross_entropy
from prol.engine.step import Remembered
from prol.methods.gradient import GradientLearner, descend, head_parts
from prol.methods.prompts.conv_prompts import ConvPrompts, generators_by_likeness
from prol.methods.prompts.prefixes import PromptOptions
from prol.options import Count, NotNegative, Positive, Whole
from prol.state import State
from prol.tables import Amount


@dataclass(frozen=True)
class ConvPromptOptions(PromptOptions):
    """Options of ConvPrompt."""

    lr: NotNegative = 0.05
    clip: Positive | None = None
    blocks: Whole = 5
    """Prompted blocks, counted from the first."""
    length: Count = 5
    """Positions of a prefix."""
    generators: Literal["constant", "auto"] = "constant"
    """How many generators a task gets: by `schedule`, or by how much its classes differ from those before."""
    schedule: str = "5,2"
    """Generators of the first, second, ... task; the last number holds for all later ones. auto reads the first."""
    auto_chunks: Count = 5
    """Chunks of a task that auto looks at before it adds generators."""
    drift: NotNegative = 0.01
    """Weight of the distance (sum of absolute values) that base maps and matcher move within a task."""
    train_keys: bool = False
    """Whether keys are trained; the published code never does, by an oversight."""
    norm_lr_factor: NotNegative = 0.005
    """Rate of the backbone's LayerNorms from the second task on, as a share of lr."""

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = self.schedule.split(",")
        if not all(number.strip().isdecimal() for number in numbers) or int(numbers[0]) < 1:
            raise ValueError(
                f"schedule={self.schedule!r} is not valid: write whole numbers with commas, as 5,2, the first not 0"
            )

    def scheduled(self, task: int) -> int:
        """Generators of a task, counted from 0, by the schedule."""
        numbers = [int(number) for number in self.schedule.split(",")]
        return numbers[min(task, len(numbers) - 1)]


class ConvPrompt(GradientLearner):
    """Prefixes are mixtures of what small convolutions make of maps that all tasks share.

    The weights of a mixture come from the class token that enters a block, so no second pass is needed. Each task adds
    generators and a head and freezes the old ones; the backbone's LayerNorms are trained, slowly after the first task.
    """

    name: ClassVar[str] = "convprompt"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = (
        "Roy et al., Convolutional Prompting meets Language Models for Continual Learning, CVPR 2024; no descriptors"
    )
    needs_blocks: ClassVar[bool] = True
    Options: ClassVar[type] = ConvPromptOptions
    options: ConvPromptOptions
    backbone: Transformer

    def build(self, state: State) -> None:
        o = self.options
        b = require_vit(self.name, self.backbone, o.blocks)
        self.working = b.fork("norms")
        self.source = ConvPrompts(state, b.width, b.heads, o.blocks, o.length, self.random, b.dtype)
        self.heads = TaskHeads(state, b.width, b.dtype, self.random)
        state.tensors("norm", self.working.trained, kind="parameter")
        # What auto looks at; otherwise the tables stay empty.
        seen, auto = state.scope("seen"), o.generators == "auto"
        self.sums = seen.table("sums", b.width, kind="statistic", dtype=torch.float64, grows=auto)
        self.counts = seen.table("counts", kind="statistic", dtype=torch.float64, grows=auto)
        self.adam = Adam(state, per_class={"head.weight": "keep", "head.bias": "keep"})
        shared = "the generators of its task, the maps and the LayerNorms that all share were trained with it"
        state.trace(removed=shared, merged=shared)
        self.train_with(state)

    # Learning

    def start_task(self) -> None:
        self.adam.reset()
        self.heads.begin_head()
        self.source.begin_task(first=self.clock.number == 0)
        if self.clock.number == 0 or self.options.generators == "constant":
            self.source.add_generators(self.options.scheduled(self.clock.number), self.random)

    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        staged, rows = Remembered(self.staged(pixels)), upload(rows, self.backbone.device)
        self.step(staged, rows)
        if self.options.generators == "auto":
            self._look_at(self.rendered(*staged.made), rows)

    def one_step(self, inputs: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        with torch.no_grad():
            tokens = self.backbone.embed(inputs)
        parts = self._trained()
        feature = self.working.encode(tokens, additions=self.source.additions(parts)).feature
        logits = self.heads.logits(feature, head_parts(parts))
        allowed = allowed_classes(o.mask, rows, self.clock.first_row, len(self.classes))
        values = {"ce": masked_cross_entropy(logits, rows, allowed), "drift": self.source.drift(parts)}
        values["total"] = values["ce"] + o.drift * values["drift"]
        generators = torch.full((), self.source.keys.count, dtype=torch.float64, device=rows.device)
        return descend(values, parts, self.adam, o, 1.0 if self.clock.number == 0 else o.norm_lr_factor) | {
            "generators": generators
        }

    def _trained(self) -> dict[str, Part]:
        """What the current task trains: shared maps and matcher, its generators, its head, and the LayerNorms."""
        parts = self.source.trained(self.options.train_keys)
        parts |= {f"head.{name}": part for name, part in self.heads.trained().items()}
        return parts | {f"norm.{name}": Part(p.data, p) for name, p in self.working.trained().items()}

    @torch.no_grad()
    def _look_at(self, inputs: Tensor, rows: Tensor) -> None:
        """Adds features of the untouched network to class sums, and the task's generators when it is time."""
        self.stored.overwrites("seen")
        self.sums.add(rows, self.look(inputs).double())
        self.counts.add(rows, torch.ones_like(rows, dtype=torch.float64))
        if self.clock.number > 0 and self.clock.steps == self.options.auto_chunks:
            most, first_row = self.options.scheduled(0), self.clock.first_row
            count = generators_by_likeness(self.sums.rows, self.counts.rows, first_row, most)
            self.source.add_generators(count, self.random)

    # Predicting and counting

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        tokens = self.backbone.embed(self.evaluation_input(pixels))
        return self.heads.logits(self.working.encode(tokens, additions=self.source.additions()).feature)

    def trained_tensors(self) -> list[Tensor]:
        if not self.heads.first_rows:
            return []
        others = [part.leaf for name, part in self._trained().items() if not name.startswith("head.")]
        return [*self.heads.live_tensors(), *others]

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
