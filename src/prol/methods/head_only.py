"""A linear head on a frozen backbone: what training without any prompt gives."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import Augment, Backbone, InputRange, Pixels, evaluation_input
from prol.class_rows import AGAINST_IT, AUGMENTED, AVERAGED, Contents
from prol.engine import losses
from prol.engine.adam import Adam, Part, part_gradients
from prol.engine.captured import FrozenPass
from prol.engine.step import FastStep
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.gradient import SteppedLearner
from prol.parts.packing import packed, unpacked
from prol.parts.rows import RowTable


@dataclass(frozen=True)
class HeadOnlyOptions:
    """Dials of the linear head."""

    inter: float = 1.0
    """Weight of the cross entropy over all classes met so far."""
    intra: float = 0.0
    """Weight of the cross entropy over the current task's classes."""
    lr: float = 0.05
    """Nominal learning rate; the effective one is lr x chunk / 256 with lr_scaling."""
    lr_scaling: bool = True
    chunk: int = 10
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


class HeadOnly(SteppedLearner):
    """One Linear that grows with the classes, trained by Adam on the class feature; the backbone stays as it is."""

    name: ClassVar[str] = "head_only"
    family: ClassVar[str] = "fine-tuning"
    citation: ClassVar[str] = "linear probe, the plain baseline"
    fixed = "all"
    Options: ClassVar[type] = HeadOnlyOptions
    only_grow: ClassVar[tuple[str, ...]] = ("weight", "bias")
    options: HeadOnlyOptions

    def __init__(self, backbone: Backbone, options: HeadOnlyOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.preprocessing = backbone.preprocessing.overridden(options.input_range, options.crop_pct)
        self._look = FrozenPass(backbone.features, backbone.acceleration.captured)
        self.weight = RowTable((backbone.width,), backbone.device, backbone.dtype)
        self.bias = RowTable((), backbone.device, backbone.dtype)
        self.adam = Adam(backbone.device)
        self.clock = TaskClock(options.task_min_classes, options.task_min_steps)
        self._take_step = FastStep(self._one_step, self._see, backbone.acceleration.captured, options.lr)

    def _start_task(self) -> None:
        self.clock.begin(len(self.classes))
        self.adam.reset()

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.weight.append(torch.empty(len(names), self.backbone.width).normal_(0, 0.02, generator=self.random))
        self.bias.append(torch.zeros(len(names)))

    def _layout(self) -> tuple[Hashable, ...]:
        return (*super()._layout(), self.adam.moves)

    @torch.no_grad()
    def _see(self, *staged: Tensor) -> dict[str, Tensor]:
        return {"features": self.backbone.features(self._rendered(*staged))}

    def _one_step(self, features: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        every = torch.arange(len(self.classes), device=rows.device)
        parts = {"weight": Part.whole(self.weight.rows), "bias": Part.whole(self.bias.rows)}
        logits = F.linear(features, parts["weight"].leaf, parts["bias"].leaf)
        first = self.clock.first_row
        inter, intra = losses.inter_task(logits, rows), losses.intra_task(logits, rows, every >= first, rows >= first)
        total = o.inter * inter + o.intra * intra
        lr = o.lr * o.chunk / 256 if o.lr_scaling else o.lr
        gradients = part_gradients(total, parts)
        self.adam.begin_step(total.detach().isfinite())
        self.adam.update_all(parts, gradients, lr)
        values = {"inter": inter.detach(), "intra": intra.detach(), "total": total.detach()}
        return values | {"lr": torch.full((), lr, dtype=torch.float64, device=rows.device)}

    def _fixed(self, pixels: Pixels) -> Tensor:
        return self._look(evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype))

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:
        return F.linear(self._fixed(pixels) if fixed is None else fixed, self.weight.rows, self.bias.rows)

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        names = ("weight", "bias", "adam/weight/*", "adam/bias/*")
        return Contents(dict.fromkeys(names, "mean"), traces=(AGAINST_IT, AUGMENTED), merged=(AVERAGED,))

    def footprint(self) -> Footprint:
        head, nothing = Amount.of(self.weight.rows, self.bias.rows), Amount(0, 0)
        return Footprint(head, head, nothing, nothing)

    def _state(self) -> State:
        moments, adam = self.adam.state()
        tensors = {"weight": self.weight.rows, "bias": self.bias.rows} | packed(adam=moments)
        return tensors, {"adam": adam, "clock": asdict(self.clock), "last": dict(self.report())}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.weight.replace(tensors["weight"])
        self.bias.replace(tensors["bias"])
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.clock = TaskClock(**meta["clock"])
        self._take_step.restore(meta["last"])
