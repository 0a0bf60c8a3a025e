"""Sequential fine-tuning: the whole network trained on the stream without any protection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from prol.backbones.base import Pixels
from prol.engine.adam import Adam, Part, part_gradients
from prol.engine.heads import LinearHead
from prol.engine.losses import clip_together
from prol.methods.gradient import HEAD, GradientLearner, reported
from prol.methods.head_only import HeadOnlyOptions, both_cross_entropies
from prol.options import NotNegative
from prol.state import State

HEAD_DEVIATION = 0.02


@dataclass(frozen=True)
class FinetuneOptions(HeadOnlyOptions):
    """Options of the training of all weights."""

    lr: NotNegative = 1e-4
    """Learning rate; with lr_scaling the effective one is lr x chunk / 256."""
    lr_scaling: bool = False
    """Whether the learning rate is scaled by the chunk size."""


class Finetune(GradientLearner):
    """Every weight of a copy of the backbone and one Linear over all classes, trained by Adam; nothing is protected."""

    name: ClassVar[str] = "finetune"
    family: ClassVar[str] = "fine-tuning"
    citation: ClassVar[str] = "sequential fine-tuning, the plain baseline; rows FT of the PROL paper's ablation"
    Options: ClassVar[type] = FinetuneOptions
    options: FinetuneOptions

    def build(self, state: State) -> None:
        b = self.backbone
        self.working = b.fork("all")
        # A step is smaller than bf16 can add to a weight: such weights are trained in the type of the residual stream.
        self.weights = {name: p.detach().to(b.dtype) for name, p in self.working.trained().items()}
        self.head = LinearHead(state.scope("head"), b.width, b.dtype, deviation=HEAD_DEVIATION, random=self.random)
        state.tensors("weights", lambda: self.weights, kind="parameter")
        state.on_load(self._renew_working_weights)
        self.adam = Adam(state, per_class=HEAD)
        self.train_with(state, "every weight of the network was trained with it")

    def start_task(self) -> None:
        self.adam.reset()

    def one_step(self, inputs: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o, head = self.options, self.head.trained()
        logits = self.head.logits(self.working.features(inputs), head)
        inter, intra = both_cross_entropies(logits, rows, self.clock.first_row)
        total = o.inter * inter + o.intra * intra
        trunk = {name: Part(self.weights[name], p) for name, p in self.working.trained().items()}
        parts = {f"head.{name}": part for name, part in head.items()} | trunk
        gradients = part_gradients(total, parts)
        gradients = {name: gradient.to(self.backbone.dtype) for name, gradient in gradients.items()}
        if o.clip is not None:
            gradients = clip_together(gradients, o.clip)
        self.adam.begin_step(total.detach().isfinite())
        self.adam.update_together("trunk", list(trunk.values()), [gradients[name] for name in trunk], o.rate)
        self.adam.update_all({name: part for name, part in parts.items() if name not in trunk}, gradients, o.rate)
        self._renew_working_weights()
        return reported({"inter": inter, "intra": intra, "total": total}, o)

    @torch.no_grad()
    def _renew_working_weights(self) -> None:
        """Copies trained weights to the network in its type; where both have one type they are one tensor."""
        for name, parameter in self.working.trained().items():
            if parameter.dtype != self.weights[name].dtype:
                parameter.copy_(self.weights[name])

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        return self.head.logits(self.working.features(self.evaluation_input(pixels)))
