"""LAE: an online module learns, a moving average of it remembers, and the surer of both predicts."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones.base import Pixels
from prol.backbones.blocks import Transformer, require_vit
from prol.engine.adam import Adam, Part
from prol.engine.heads import LinearHead
from prol.methods.adapters.modules import (
    Adapter,
    AdapterOptions,
    FixedPrefix,
    LowRank,
    Module,
    move_towards,
    seen_softmax,
)
from prol.methods.gradient import HEAD, GradientLearner, descend, head_parts, leaves
from prol.options import Count, NotNegative, Share, Whole
from prol.state import State


@dataclass(frozen=True)
class LAEOptions(AdapterOptions):
    """Options of LAE."""

    lr: NotNegative = 0.003
    """Learning rate; with lr_scaling the effective one is lr x chunk / 256."""
    module: Literal["adapter", "lora", "prefix"] = "adapter"
    """What is trained inside the blocks."""
    size: Count | None = None
    """Bottleneck of adapters (5), rank of LoRA (5) or length of prefixes (10)."""
    blocks: Count = 5
    """Blocks with a module, counted from the first."""
    scale: NotNegative = 1.0
    """Weight of an adapter's output beside the MLP."""
    targets: Literal["kv", "qv", "qkv"] = "kv"
    """The maps that LoRA changes."""
    decay: Share = 0.999
    """Share of the moving average that stays at each step."""
    freeze_steps: Whole = 20
    """From the second task on, the first steps of a task train the head alone."""


def make_module(vit: Transformer, o: LAEOptions) -> Module:
    if o.module == "adapter":
        return Adapter(vit.width, o.blocks, o.size or 5, o.scale)
    if o.module == "lora":
        return LowRank(vit.width, o.blocks, o.size or 5, o.targets)
    return FixedPrefix(vit.width, vit.heads, o.blocks, o.size or 10)


class LAE(GradientLearner):
    """An online module and its moving average share one head; the higher of their two probabilities is the score."""

    name: ClassVar[str] = "lae"
    family: ClassVar[str] = "adapters"
    citation: ClassVar[str] = "Gao et al., A Unified Continual Learning Framework with General PET, ICCV 2023"
    needs_blocks: ClassVar[bool] = True
    Options: ClassVar[type] = LAEOptions
    options: LAEOptions
    backbone: Transformer

    def build(self, state: State) -> None:
        vit, o = require_vit(self.name, self.backbone), self.options
        if o.blocks > vit.depth:
            raise ValueError(f"blocks={o.blocks}, but the backbone has {vit.depth}: pass blocks={vit.depth}")
        self.module = make_module(vit, o)
        self.online = {name: t.to(vit.device, vit.dtype) for name, t in self.module.draw(self.random).items()}
        self.slow: dict[str, Tensor] = {}
        state.tensors("online", lambda: self.online, kind="parameter")
        state.group("slow", lambda: self.slow, self._load_slow, kind="parameter")
        self.head = LinearHead(state.scope("head"), vit.width, vit.dtype)
        self.seen = state.table("seen", dtype=torch.bool, kind="statistic", combine="either")
        self.adam = Adam(state, per_class=HEAD)
        self.train_with(state, "both adapters, which all classes share, were trained with it")

    def _load_slow(self, saved: Mapping[str, Tensor]) -> None:
        for name in saved and {*saved, *self.online}:
            if name not in saved or name not in self.online or saved[name].shape != self.online[name].shape:
                raise ValueError(f"slow/{name} does not fit online/{name}")
        self.slow = {name: tensor.to(self.online[name].dtype) for name, tensor in saved.items()}

    def start_task(self) -> None:
        self.adam.reset()
        if self.clock.number == 1:  # what the first task taught is where the moving average begins
            self.stored.overwrites("slow")
            self.slow = {name: tensor.clone() for name, tensor in self.online.items()}

    # One step

    def layout(self) -> tuple[Hashable, ...]:
        return (*super().layout(), self._waits())

    def one_step(self, inputs: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o, module = self.options, self._trained_module()
        parts = {f"head.{name}": part for name, part in self.head.trained().items()} | module
        features = self._features(self.backbone.embed(inputs), leaves(module) or self.online)
        loss = self.class_loss(self.head.logits(features, head_parts(parts)), rows, o.mask)
        valid = loss.detach().isfinite()
        values = descend({"ce": loss, "total": loss}, parts, self.adam, o)
        move_towards(self.slow, self.online, valid.double() * (1 - o.decay))
        self.seen.rows[rows] = self.seen.rows[rows] | valid
        return values

    def _trained_module(self) -> dict[str, Part]:
        """The online module's parts, none while it waits for the head to learn the new classes."""
        return {} if self._waits() else {name: Part.whole(tensor) for name, tensor in self.online.items()}

    def _waits(self) -> bool:
        return self.clock.number > 0 and self.clock.steps < self.options.freeze_steps

    def _features(self, tokens: Tensor, module: Mapping[str, Tensor]) -> Tensor:
        return self.backbone.encode(tokens, additions=self.module.additions(module)).feature

    # Predicting

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        tokens, seen = self.backbone.embed(self.evaluation_input(pixels)), self.seen.rows
        scores = seen_softmax(self.head.logits(self._features(tokens, self.online)), seen)
        if self.slow:
            slow = seen_softmax(self.head.logits(self._features(tokens, self.slow)), seen)
            scores = torch.maximum(scores, slow)
        return scores

    def trained_tensors(self) -> list[Tensor]:
        rows = (table[self.clock.first_row :] for table in self.head.tensors())
        return [*leaves(self._trained_module()).values(), *rows]
