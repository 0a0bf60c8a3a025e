"""Small modules trained inside a ViT's blocks: adapters, low-rank changes and prefixes, each stacked over the blocks.

Axes: L blocks from the first on, D the network's width, b an adapter's bottleneck, r a rank, t the changed maps among
query, key and value, H heads, l positions, d = D / H. A module is a handful of tensors by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.blocks import Additions, Prefix, Transformer
from prol.engine.adam import Part
from prol.methods.gradient import TrainingOptions
from prol.state import State

PREFIX_DEVIATION = 0.02


@dataclass(frozen=True)
class AdapterOptions(TrainingOptions):
    """Options that MOS, EASE and LAE have in common."""

    lr_scaling: bool = False
    """Whether the learning rate is scaled by the chunk size."""


class Module(Protocol):
    """A kind of module: how it starts, and what it adds inside the blocks."""

    def draw(self, random: torch.Generator) -> dict[str, Tensor]:
        """Fresh tensors; adapters and low-rank changes start by adding nothing."""
        ...

    def additions(self, tensors: Mapping[str, Tensor]) -> dict[int, Additions]:
        """What these tensors add, by block."""
        ...


@dataclass(frozen=True)
class Adapter:
    """scale (up ReLU(down x + bias) + bias) beside each MLP, x being the residual stream before the LayerNorm.

    `down` `[L, b, D]` and `up` `[L, D, b]`, with biases. All four may have a leading axis of samples `[B, ...]`: then
    each sample has its own adapter.
    """

    width: int
    blocks: int
    bottleneck: int
    scale: float

    def draw(self, random: torch.Generator) -> dict[str, Tensor]:
        blocks, narrow, width = self.blocks, self.bottleneck, self.width
        return {
            "down": _uniform((blocks, narrow, width), width**-0.5, random),
            "down_bias": torch.zeros(blocks, narrow),
            "up": torch.zeros(blocks, width, narrow),
            "up_bias": torch.zeros(blocks, width),
        }

    def additions(self, tensors: Mapping[str, Tensor]) -> dict[int, Additions]:
        down, up = (tensors[name].unbind(-3) for name in ("down", "up"))
        down_bias, up_bias = (tensors[name].unbind(-2) for name in ("down_bias", "up_bias"))

        def beside(i: int) -> Additions:
            def change(x: Tensor) -> Tensor:
                hidden = x.to(down[i].dtype) @ down[i].mT + down_bias[i].unsqueeze(-2)
                return self.scale * (F.relu(hidden) @ up[i].mT + up_bias[i].unsqueeze(-2))

            return Additions(adapter=change)

        return {i: beside(i) for i in range(self.blocks)}


@dataclass(frozen=True)
class LowRank:
    """up down x beside the maps to queries, keys or values (LoRA); `down` `[L, t, r, D]`, `up` `[L, t, D, r]`."""

    width: int
    blocks: int
    rank: int
    targets: str
    """The changed maps: letters of "qkv"."""

    def draw(self, random: torch.Generator) -> dict[str, Tensor]:
        shape = (self.blocks, len(self.targets), self.rank, self.width)
        return {"down": _uniform(shape, self.width**-0.5, random), "up": torch.zeros(shape).mT.contiguous()}

    def additions(self, tensors: Mapping[str, Tensor]) -> dict[int, Additions]:
        down, up = tensors["down"], tensors["up"]

        def beside(i: int) -> Additions:
            def change(x: Tensor) -> Tensor:
                changed = (x.to(down.dtype).unsqueeze(0) @ down[i].mT.unsqueeze(1)) @ up[i].mT.unsqueeze(1)
                by_target = dict(zip(self.targets, changed, strict=True))
                nothing = torch.zeros_like(changed[0])
                return torch.cat([by_target.get(target, nothing) for target in "qkv"], dim=-1)

            return Additions(low_rank=change)

        return {i: beside(i) for i in range(self.blocks)}


@dataclass(frozen=True)
class FixedPrefix:
    """The same keys and values before those of every sample, `[L, H, l, d]` each."""

    width: int
    heads: int
    blocks: int
    length: int

    def draw(self, random: torch.Generator) -> dict[str, Tensor]:
        shape = (self.blocks, self.heads, self.length, self.width // self.heads)
        return {name: torch.empty(shape).normal_(0, PREFIX_DEVIATION, generator=random) for name in ("keys", "values")}

    def additions(self, tensors: Mapping[str, Tensor]) -> dict[int, Additions]:
        keys, values = tensors["keys"], tensors["values"]

        def before(i: int) -> Additions:
            def prefix(class_token: Tensor) -> Prefix:
                batch = class_token.shape[0]
                return keys[i].expand(batch, -1, -1, -1), values[i].expand(batch, -1, -1, -1)

            return Additions(prefix=prefix)

        return {i: before(i) for i in range(self.blocks)}


class TaskModules:
    """One module per task, each of its tensors stacked over the tasks; the last task's is the one being trained."""

    def __init__(self, state: State, network: Transformer, module: Module) -> None:
        self.network, self.module = network, module
        shapes = {name: tuple(t.shape) for name, t in module.draw(torch.Generator()).items()}
        declare = partial(state.table, dtype=network.dtype, kind="parameter", combine=None, grows=False)
        self.tables = {name: declare(name, shape) for name, shape in shapes.items()}

    @property
    def count(self) -> int:
        return next(iter(self.tables.values())).count

    def append(self, tensors: Mapping[str, Tensor]) -> None:
        """A task begins with this module."""
        for name, table in self.tables.items():
            table.append(tensors[name].unsqueeze(0))

    def of(self, task: int | Tensor) -> dict[str, Tensor]:
        """The module of one task as views, or of a task for each sample `[B]` as copies."""
        return {name: table.rows[task] for name, table in self.tables.items()}

    def current(self) -> list[Tensor]:
        """The last task's tensors, none before the first task."""
        return list(self.of(-1).values()) if self.count else []

    def features(self, tokens: Tensor, tensors: Mapping[str, Tensor]) -> Tensor:
        """Class features `[B, D]` of tokens `[B, N, D]` with one module for all samples, or one for each."""
        return self.network.encode(tokens, additions=self.module.additions(tensors)).feature

    def trained(self) -> dict[str, Part]:
        """The last task's tensors as parts to train."""
        return {name: Part.whole(tensor) for name, tensor in self.of(-1).items()}

    def mean_of_earlier(self) -> dict[str, Tensor]:
        """The mean over all tasks but the last."""
        return {name: table.rows[:-1].mean(0) for name, table in self.tables.items()}


def require_one_per_task(modules: TaskModules, first_rows: Sequence[int]) -> None:
    """Refuses a loaded state with more or fewer modules than tasks, whose first classes are in `first_rows`."""
    if modules.count != len(first_rows):
        raise ValueError(f"{modules.count} adapters for {len(first_rows)} tasks")


@torch.no_grad()
def move_towards(tensors: Mapping[str, Tensor], goal: Mapping[str, Tensor], share: float | Tensor) -> None:
    """(1 - share) tensor + share goal, in place: adapter merging, and a moving average."""
    for name, tensor in tensors.items():
        tensor.lerp_(goal[name], share.to(tensor) if isinstance(share, Tensor) else share)


def seen_softmax(logits: Tensor, seen: Tensor) -> Tensor:
    """Probabilities `[B, C]` over the classes `seen` `[C]`, zero for the others; all alike if nothing was seen."""
    return logits.masked_fill(~seen, torch.finfo(logits.dtype).min).softmax(1)


def _uniform(shape: tuple[int, ...], bound: float, random: torch.Generator) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound, generator=random)
