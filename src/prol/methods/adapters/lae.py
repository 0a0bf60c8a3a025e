"""LAE: one small module learns on, a slow copy of it remembers, and at test the surer of both answers."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones import Backbone, Pixels, ViT, evaluation_input, require_vit
from prol.class_rows import AGAINST_IT, AVERAGED, LINEAR_HEAD, Contents
from prol.engine.adam import Adam, Part, part_gradients
from prol.engine.heads import LinearHead
from prol.engine.losses import allowed_classes, clip_together, masked_cross_entropy
from prol.engine.step import FastStep
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.adapters.modules import Adapter, FixedPrefix, LowRank, Module, move_towards
from prol.methods.adapters.training import AdapterOptions, leaves, seen_softmax
from prol.methods.gradient import SteppedLearner
from prol.parts.packing import packed, unpacked
from prol.parts.rows import RowTable


@dataclass(frozen=True)
class LAEOptions(AdapterOptions):
    """Dials of LAE."""

    lr: float = 0.003
    """Learning rate in force; with lr_scaling it is lr x chunk / 256."""
    module: Literal["adapter", "lora", "prefix"] = "adapter"
    size: int | None = None
    """Bottleneck of adapters (5), rank of LoRA (5) or length of prefixes (10)."""
    blocks: int = 5
    """Blocks with a module, counted from the first."""
    scale: float = 1.0
    """Weight of an adapter's output beside the MLP."""
    targets: Literal["kv", "qv", "qkv"] = "kv"
    """The maps that LoRA changes."""
    decay: float = 0.999
    """Share of the slow copy that stays at each step."""
    freeze_steps: int = 20
    """From the second task on, the first steps of a task train the head alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_whole(1, "blocks")
        self.require_whole(0, "freeze_steps")
        self.require_amount("scale")
        self.require_share("decay")
        if self.size is not None:
            self.require_whole(1, "size")


def make_module(vit: ViT, o: LAEOptions) -> Module:
    if o.module == "adapter":
        return Adapter(vit.width, o.blocks, o.size or 5, o.scale)
    if o.module == "lora":
        return LowRank(vit.width, o.blocks, o.size or 5, o.targets)
    return FixedPrefix(vit.width, vit.heads, o.blocks, o.size or 10)


class LAE(SteppedLearner):
    """An online module and its moving average share one head; the higher of their two probabilities is the score."""

    name: ClassVar[str] = "lae"
    family: ClassVar[str] = "adapters"
    citation: ClassVar[str] = "Gao et al., A Unified Continual Learning Framework with General PET, ICCV 2023"
    Options: ClassVar[type] = LAEOptions
    only_grow: ClassVar[tuple[str, ...]] = ("head/weight", "head/bias", "seen")
    options: LAEOptions
    backbone: ViT

    def __init__(self, backbone: Backbone, options: LAEOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        vit, o = require_vit(self.name, backbone), options
        if o.blocks > vit.depth:
            raise ValueError(f"blocks={o.blocks}, but the backbone has {vit.depth}: pass blocks={vit.depth}")
        self.preprocessing = vit.preprocessing.overridden(o.input_range, o.crop_pct)
        self.module = make_module(vit, o)
        self.online = {name: t.to(vit.device, vit.dtype) for name, t in self.module.draw(self.random).items()}
        self.slow: dict[str, Tensor] = {}
        self.head = LinearHead(vit.width, vit.device, vit.dtype)
        self.seen = RowTable((), vit.device, torch.bool)
        self.adam = Adam(backbone.device)
        self.clock = TaskClock(o.task_min_classes, o.task_min_steps)
        self._take_step = FastStep(self._one_step, self._see, vit.acceleration.captured, options.lr)

    # Classes and tasks

    def _start_task(self) -> None:
        self.clock.begin(len(self.classes))
        self.adam.reset()
        if self.clock.number == 1:  # what the first task taught is where the slow copy begins
            self.slow = {name: tensor.clone() for name, tensor in self.online.items()}

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.head.append(len(names), self.random)
        self.seen.append(torch.zeros(len(names), dtype=torch.bool))

    # One step

    def _layout(self) -> tuple[Hashable, ...]:
        return (*super()._layout(), self._waits(), self.adam.moves)

    def _one_step(self, inputs: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        head, module = self.head.trained(), self._trained_module()
        parts = {f"head.{name}": part for name, part in head.items()} | module
        features = self._features(self.backbone.embed(inputs), leaves(module) or self.online)
        allowed = allowed_classes(o.mask, rows, self.clock.first_row, len(self.classes))
        loss = masked_cross_entropy(self.head.logits(features, head), rows, allowed)
        valid = loss.detach().isfinite()
        gradients = part_gradients(loss, parts)
        if o.clip is not None:
            gradients = clip_together(gradients, o.clip)
        self.adam.begin_step(valid)
        self.adam.update_all(parts, gradients, o.rate)
        move_towards(self.slow, self.online, valid.double() * (1 - o.decay))
        self.seen.rows[rows] = self.seen.rows[rows] | valid
        lr = torch.full((), o.rate, dtype=torch.float64, device=rows.device)
        return {"ce": loss.detach(), "total": loss.detach(), "lr": lr}

    def _trained_module(self) -> dict[str, Part]:
        """The online module's parts, none while it waits for the head to know the new classes."""
        return {} if self._waits() else {name: Part.whole(tensor) for name, tensor in self.online.items()}

    def _waits(self) -> bool:
        return self.clock.number > 0 and self.clock.steps < self.options.freeze_steps

    def _features(self, tokens: Tensor, module: Mapping[str, Tensor]) -> Tensor:
        return self.backbone.encode(tokens, additions=self.module.additions(module)).feature

    # Answering, saving, counting

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:  # noqa: ARG002
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        tokens, seen = self.backbone.embed(inputs), self.seen.rows
        answers = seen_softmax(self.head.logits(self._features(tokens, self.online)), seen)
        if self.slow:
            slow = seen_softmax(self.head.logits(self._features(tokens, self.slow)), seen)
            answers = torch.maximum(answers, slow)
        return answers

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        mixed = "both adapters, which all classes share, were trained with it"
        return Contents(
            {**LINEAR_HEAD, "seen": "either"},
            statistics=("seen",),
            traces=(AGAINST_IT, mixed),
            merged=(AVERAGED, mixed),
        )

    def footprint(self) -> Footprint:
        head, first = [table.rows for table in self.head.tables().values()], self.clock.first_row
        return Footprint(
            Amount.of(*leaves(self._trained_module()).values(), *(rows[first:] for rows in head)),
            Amount.of(*self.online.values(), *self.slow.values(), *head),
            Amount.of(self.seen.rows),
            Amount(0, 0),
        )

    def _state(self) -> State:
        moments, adam = self.adam.state()
        head = {name: table.rows for name, table in self.head.tables().items()}
        tensors = packed(online=self.online, slow=self.slow, head=head, adam=moments) | {"seen": self.seen.rows}
        return tensors, {"adam": adam, "clock": asdict(self.clock), "last": dict(self.report())}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.online, self.slow = unpacked("online", tensors), unpacked("slow", tensors)
        self.head.load(unpacked("head", tensors))
        self.seen.replace(tensors["seen"])
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.clock = TaskClock(**meta["clock"])
        self._take_step.restore(meta["last"])
