"""ConvPrompt without text descriptors: a few convolutional prompt generators for each task.

Prefixes are convolutions of shared maps, mixed by how well keys match the class token.
Axes: L prompted blocks, 2 for key/value, H heads, J generators, l positions, d = D / H. Kernels are 17 x 17.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.base import Pixels
from prol.backbones.blocks import Additions, Prefix, Transformer, require_vit
from prol.engine.adam import Adam, Part
from prol.engine.heads import TaskHeads
from prol.engine.similarity import cosine_to_all
from prol.engine.step import Remembered
from prol.methods.gradient import GradientLearner, descend, head_parts
from prol.methods.prompts.prefixes import PromptOptions, orthonormal_rows
from prol.options import Count, NotNegative, Positive, Whole
from prol.state import State
from prol.tables import Amount, Table

KERNEL = 17
_SHARED = ("base", "matcher.in.weight", "matcher.in.bias", "matcher.out.weight", "matcher.out.bias")


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
        self.train_with(
            state, "the generators of its task, the maps and the LayerNorms that all share were trained with it"
        )

    # Learning

    def start_task(self) -> None:
        self.adam.reset()
        self.heads.begin_head()
        self.source.begin_task(first=self.clock.number == 0)
        if self.clock.number == 0 or self.options.generators == "constant":
            self.source.add_generators(self.options.scheduled(self.clock.number), self.random)

    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        staged, rows = Remembered(self.staged(pixels)), self.backbone.upload(rows)
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
        values = {"ce": self.class_loss(logits, rows, o.mask), "drift": self.source.drift(parts)}
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


def generated(base: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """What each generator makes of each base map, `[L, 2, H, J, l, d]`; the images have no part in it.

    `base` `[L, 2, H, l + 16, d + 16]`, `weight` `[J, L, 2, H, 17, 17]`, `bias` `[J, L, 2, H]`. A convolution without
    padding, one group per map, as a matrix product: its gradients are the same from run to run on every device.
    """
    count, maps = len(weight), base.shape[:3]
    rows, columns = (side - KERNEL + 1 for side in base.shape[3:])
    windows = F.unfold(base.flatten(0, 2).unsqueeze(1), KERNEL)
    kernels = weight.reshape(count, -1, KERNEL**2).transpose(0, 1)
    out = torch.baddbmm(bias.reshape(count, -1).T.unsqueeze(2), kernels, windows)
    return out.view(*maps, count, rows, columns)


def match(tokens: Tensor, matcher: Mapping[str, Tensor], keys: Tensor) -> Tensor:
    """Cosine of class tokens `[B, D]`, mapped by a small MLP to `[B, D / 4]`, to every generator's key: `[B, J]`."""
    hidden = F.linear(tokens, matcher["matcher.in.weight"], matcher["matcher.in.bias"]).relu()
    return cosine_to_all(F.linear(hidden, matcher["matcher.out.weight"], matcher["matcher.out.bias"]), keys)


def mixing_blocks(made: Tensor, weigh: Callable[[Tensor], Tensor]) -> dict[int, Additions]:
    """Additions that give each block its mixture of `made` `[L, 2, H, J, l, d]`, for one pass.

    `weigh` turns the class tokens that enter a block into weights `[B, J]`. From the second block on the mixture of
    the block before is added, as it was without its own predecessor.
    """
    before: list[Tensor] = []

    def prefix_of(block: int) -> Callable[[Tensor], Prefix]:
        def prefix(class_token: Tensor) -> Prefix:
            own = torch.einsum("bj,khjld->bkhld", weigh(class_token), made[block])
            summed = own + before[-1] if before else own
            before.append(own)
            return summed[:, 0], summed[:, 1]

        return prefix

    return {block: Additions(prefix_of(block)) for block in range(len(made))}


def generators_by_likeness(sums: Tensor, counts: Tensor, first_row: int, most: int) -> int:
    """How many generators a task needs: `most` if its classes are like none before, at least 1.

    ceil((1 - s) most), where s is the mean over the task's classes, from `first_row` on, of the best cosine of their
    mean feature to that of an earlier class. `sums` `[C, D]` and `counts` `[C]`; the mean of all samples is taken off
    first, because raw features of a ViT are all alike. Announced classes without images do not count.
    """
    means = sums / counts.clamp(min=1).unsqueeze(1) - sums.sum(0) / counts.sum().clamp(min=1)
    old, new = means[:first_row][counts[:first_row] > 0], means[first_row:][counts[first_row:] > 0]
    if not len(old) or not len(new):
        return most
    likeness = float(cosine_to_all(new, old).amax(1).mean().clamp(0, 1))
    return max(1, math.ceil((1 - likeness) * most))


class ConvPrompts:
    """Base maps and the matcher, shared by all tasks; generators and keys, which belong to single tasks.

    `shared` are the tensors that every task trains; `anchor` is what they were when the task began, empty in the first.
    """

    def __init__(
        self,
        state: State,
        width: int,
        heads: int,
        blocks: int,
        length: int,
        random: torch.Generator,
        dtype: torch.dtype,
    ) -> None:
        self.blocks, margin = blocks, KERNEL - 1
        self._state = source = state.scope("source")
        shapes: list[tuple[int, ...]] = [(blocks, 2, heads, length + margin, width // heads + margin)]
        shapes += [(width // 2, width), (width // 2,), (width // 4, width // 2), (width // 4,)]
        # Maps in (-1, 1); the matcher as linear layers usually begin, by the number of inputs.
        bounds = [1.0, *[width**-0.5] * 2, *[(width // 2) ** -0.5] * 2]
        self.shared: dict[str, Tensor] = {}
        for name, shape, bound in zip(_SHARED, shapes, bounds, strict=True):
            drawn = torch.empty(shape).uniform_(-bound, bound, generator=random).to(state.device, dtype)
            self.shared[name] = source.tensor(name, drawn, kind="parameter")
        by_task = partial(source.table, kind="parameter", dtype=dtype, combine=None, grows=False)
        self.weight = by_task("generator.weight", (blocks, 2, heads, KERNEL, KERNEL))
        self.bias = by_task("generator.bias", (blocks, 2, heads))
        self.keys = by_task("keys", width // 4)
        self.anchor: dict[str, Tensor] = {}
        for name in _SHARED:
            read, load = partial(self._read_anchor, name), partial(self._load_anchor, name)
            source.group(f"anchor.{name}", read, load, kind="parameter")
        self.frozen = 0
        state.value("frozen", self)
        state.on_load(self._require_frozen)

    def _require_frozen(self) -> None:
        if not 0 <= self.frozen <= self.keys.count:
            raise ValueError(f"{self.frozen} of {self.keys.count} generators are said to be frozen")

    def _read_anchor(self, name: str) -> dict[str, Tensor]:
        return {"": self.anchor[name]} if name in self.anchor else {}

    def _load_anchor(self, name: str, saved: Mapping[str, Tensor]) -> None:
        self.anchor.pop(name, None)
        if saved:
            if saved[""].shape != self.shared[name].shape:
                raise ValueError(f"source/anchor.{name} has not the shape of source/{name}")
            self.anchor[name] = saved[""].to(self.keys.buffer)

    def begin_task(self, first: bool) -> None:
        """Freezes the generators there are, and remembers the shared tensors."""
        self.frozen = self.keys.count
        if not first:
            self._state.overwrites(*(f"anchor.{name}" for name in _SHARED))
            self.anchor = {name: tensor.clone() for name, tensor in self.shared.items()}

    def add_generators(self, count: int, random: torch.Generator) -> None:
        """New ones for the current task, their keys at right angles to those there are."""
        for table in (self.weight, self.bias):
            drawn = torch.empty(count, *table.rows.shape[1:])
            table.append(drawn.uniform_(-1 / KERNEL, 1 / KERNEL, generator=random))
        self.keys.append(orthonormal_rows(count, self.keys.rows, random))

    def trained(self, keys: bool) -> dict[str, Part]:
        """Shared tensors, and the current task's generators, with their keys where requested."""
        own = torch.arange(self.frozen, self.keys.count, device=self.keys.rows.device)
        names = self.tables() if keys else [name for name in self.tables() if name != "keys"]
        parts = {name: Part.whole(tensor) for name, tensor in self.shared.items()}
        return parts | {name: Part.of_rows(self.tables()[name].rows, own, fixed=True) for name in names}

    def additions(self, live: Mapping[str, Part] | None = None) -> dict[int, Additions]:
        """What to add inside the prompted blocks in one pass, through the leaves of `live` where given."""
        if not self.blocks:
            return {}
        live = live or {}
        shared = {name: live[name].leaf if name in live else tensor for name, tensor in self.shared.items()}
        rows = {
            name: torch.cat([table.rows[: self.frozen], live[name].leaf]) if name in live else table.rows
            for name, table in self.tables().items()
        }
        made = generated(shared["base"], rows["generator.weight"], rows["generator.bias"])
        return mixing_blocks(made, lambda class_token: match(class_token, shared, rows["keys"]))

    def drift(self, live: Mapping[str, Part]) -> Tensor:
        """Sum of how far each number of the shared tensors has moved in this task; zero in the first."""
        moved = [(live[name].leaf - tensor).abs().sum() for name, tensor in self.anchor.items()]
        return torch.stack(moved).sum() if moved else self.keys.rows.new_zeros(())

    def tables(self) -> dict[str, Table]:
        return {"generator.weight": self.weight, "generator.bias": self.bias, "keys": self.keys}
