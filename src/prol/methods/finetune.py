"""The whole network trained on the stream: what learning without any protection gives."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.backbones import Augment, Backbone, InputRange, Pixels, evaluation_input
from prol.class_rows import AGAINST_IT, AVERAGED, LINEAR_HEAD, Contents
from prol.engine import losses
from prol.engine.adam import Adam, Part, part_gradients
from prol.engine.heads import LinearHead
from prol.engine.step import FastStep
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.gradient import SteppedLearner
from prol.parts.packing import packed, unpacked

HEAD_DEVIATION = 0.02


@dataclass(frozen=True)
class FinetuneOptions:
    """Dials of the training of all weights."""

    inter: float = 1.0
    """Weight of the cross entropy over all classes met so far."""
    intra: float = 0.0
    """Weight of the cross entropy over the current task's classes."""
    lr: float = 1e-4
    """Learning rate in force; with lr_scaling it is lr x chunk / 256."""
    lr_scaling: bool = False
    chunk: int = 10
    clip: float | None = None
    """Longest that all gradients together may be."""
    augment: Augment = "crop_flip"
    input_range: InputRange = "backbone"
    crop_pct: float | None = None
    task_min_classes: int = 2
    task_min_steps: int = 50

    def __post_init__(self) -> None:
        if self.inter == 0 and self.intra == 0:
            raise ValueError("inter and intra are both 0, so nothing would be learnt: give one of them a weight")
        for name in ("chunk", "task_min_classes", "task_min_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.lr < float("inf"):
            raise ValueError(f"lr must be a finite number of at least 0, got {self.lr}")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip must be above 0, or none for no limit, got {self.clip}")


class Finetune(SteppedLearner):
    """Every weight of a copy of the backbone and one Linear over all classes, trained by Adam; nothing is protected."""

    name: ClassVar[str] = "finetune"
    family: ClassVar[str] = "fine-tuning"
    citation: ClassVar[str] = "sequential fine-tuning, the plain baseline; rows FT of the PROL paper's ablation"
    Options: ClassVar[type] = FinetuneOptions
    only_grow: ClassVar[tuple[str, ...]] = ("head/weight", "head/bias")
    options: FinetuneOptions

    def __init__(self, backbone: Backbone, options: FinetuneOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.preprocessing = backbone.preprocessing.overridden(options.input_range, options.crop_pct)
        self.working = backbone.fork("all")
        # A step is smaller than bf16 can add to a weight: such weights are trained in the type of the residual stream.
        self.weights = {name: p.detach().to(backbone.dtype) for name, p in self.working.trained().items()}
        self.head = LinearHead(backbone.width, backbone.device, backbone.dtype)
        self.adam = Adam(backbone.device)
        self.clock = TaskClock(options.task_min_classes, options.task_min_steps)
        self._take_step = FastStep(self._one_step, self._see, backbone.acceleration.captured, options.lr)

    def _start_task(self) -> None:
        self.clock.begin(len(self.classes))
        self.adam.reset()

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.head.append(len(names), self.random, HEAD_DEVIATION)

    def _layout(self) -> tuple[Hashable, ...]:
        return (*super()._layout(), self.adam.moves)

    def _one_step(self, inputs: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o, head = self.options, self.head.trained()
        values = self._losses(self.head.logits(self.working.features(inputs), head), rows)
        trunk = {name: Part(self.weights[name], p) for name, p in self.working.trained().items()}
        parts = {f"head.{name}": part for name, part in head.items()} | trunk
        gradients = part_gradients(values["total"], parts)
        gradients = {name: gradient.to(self.backbone.dtype) for name, gradient in gradients.items()}
        if o.clip is not None:
            gradients = losses.clip_together(gradients, o.clip)
        lr = o.lr * o.chunk / 256 if o.lr_scaling else o.lr
        self.adam.begin_step(values["total"].detach().isfinite())
        self.adam.update_together("trunk", list(trunk.values()), [gradients[name] for name in trunk], lr)
        self.adam.update_all({name: part for name, part in parts.items() if name not in trunk}, gradients, lr)
        self._renew_working_weights()
        values = {name: value.detach() for name, value in values.items()}
        return values | {"lr": torch.full((), lr, dtype=torch.float64, device=rows.device)}

    def _losses(self, logits: Tensor, rows: Tensor) -> dict[str, Tensor]:
        """Loss terms by name; samples of older classes enter L_inter only."""
        first, every = self.clock.first_row, torch.arange(logits.shape[1], device=rows.device)
        inter, intra = losses.inter_task(logits, rows), losses.intra_task(logits, rows, every >= first, rows >= first)
        return {"inter": inter, "intra": intra, "total": self.options.inter * inter + self.options.intra * intra}

    @torch.no_grad()
    def _renew_working_weights(self) -> None:
        """Rounds what was trained to what the network computes with; where both have one type they are one tensor."""
        for name, parameter in self.working.trained().items():
            if parameter.dtype != self.weights[name].dtype:
                parameter.copy_(self.weights[name])

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:  # noqa: ARG002
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        return self.head.logits(self.working.features(inputs))

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        mixed = "every weight of the network was trained with it"
        return Contents(LINEAR_HEAD, traces=(AGAINST_IT, mixed), merged=(AVERAGED, mixed))

    def footprint(self) -> Footprint:
        head = [table.rows for table in self.head.tables().values()]
        everything, nothing = Amount.of(*self.weights.values(), *head), Amount(0, 0)
        return Footprint(everything, everything, nothing, nothing)

    def _state(self) -> State:
        moments, adam = self.adam.state()
        head = {name: table.rows for name, table in self.head.tables().items()}
        tensors = packed(head=head, weights=self.weights, adam=moments)
        return tensors, {"adam": adam, "clock": asdict(self.clock), "last": dict(self.report())}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.head.load(unpacked("head", tensors))
        for name, weight in unpacked("weights", tensors).items():
            self.weights[name].copy_(weight)
        self._renew_working_weights()
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.clock = TaskClock(**meta["clock"])
        self._take_step.restore(meta["last"])
