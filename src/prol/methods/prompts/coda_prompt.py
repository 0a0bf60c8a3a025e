"""CODA-Prompt: each image's prefix is a mixture of components, and each task adds its own components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones.base import Pixels
from prol.backbones.blocks import Transformer, require_vit
from prol.engine.adam import Adam, Part
from prol.engine.heads import LinearHead
from prol.methods.gradient import HEAD, GradientLearner, descend, head_parts, leaves, tokens_and_query
from prol.methods.prompts.prefixes import (
    PromptOptions,
    by_block,
    component_weights,
    mixed,
    orthogonality_gap,
    orthonormal_rows,
)
from prol.options import Count, NotNegative, Positive, Whole
from prol.state import State


@dataclass(frozen=True)
class CODAPromptOptions(PromptOptions):
    """Options of CODA-Prompt."""

    components: Count = 10
    """New components per task; those of earlier tasks are frozen."""
    length: Whole = 8
    """Positions of a component: the first half goes before the keys, the second before the values."""
    blocks: Whole = 5
    """Prompted blocks, counted from the first."""
    orthogonality: NotNegative = 0.0
    """Weight of the penalty on components, keys and attention vectors that are not orthonormal."""
    clip: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length % 2:
            raise ValueError(f"length must be even, half for keys and half for values, got {self.length}")


class CODAPrompt(GradientLearner):
    """Decomposed attention: prefix = sum over components j of cos(q * A_j, K_j) P_j, in each prompted block.

    q is the class feature of the untouched network. Nothing is selected, so that everything learns from one cross
    entropy: attention vectors A, keys K and components P of the current task, and one head over all classes.
    """

    name: ClassVar[str] = "coda_prompt"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = (
        "Smith et al., CODA-Prompt: COntinual Decomposed Attention-based Prompting for Rehearsal-Free Continual "
        "Learning, CVPR 2023"
    )
    encoding: ClassVar[Literal["none", "query", "all"]] = "query"
    needs_blocks: ClassVar[bool] = True
    Options: ClassVar[type] = CODAPromptOptions
    options: CODAPromptOptions
    backbone: Transformer

    def build(self, state: State) -> None:
        o = self.options
        b = require_vit(self.name, self.backbone, o.blocks)
        shapes: dict[str, tuple[int, ...]] = {
            "prompts": (o.blocks, 2, b.heads, o.length // 2, b.width // b.heads),
            "keys": (o.blocks, b.width),
            "attention": (o.blocks, b.width),
        }
        components = state.scope("components")
        self.tables = {
            name: components.table(name, shape, kind="parameter", dtype=b.dtype, combine=None, grows=False)
            for name, shape in shapes.items()
        }
        self.head = LinearHead(state.scope("head"), b.width, b.dtype)
        self.adam = Adam(state, per_class=HEAD)
        self.train_with(state, "the components, keys and attention vectors of its task were trained with it")

    def start_task(self) -> None:
        self.adam.reset()
        for table in self.tables.values():
            old, count = table.rows, self.options.components
            fresh = [orthonormal_rows(count, old[:, i].flatten(1), self.random) for i in range(self.options.blocks)]
            flat = torch.stack(fresh, dim=1) if fresh else old.new_zeros(count, 0)
            table.append(flat.view(count, *old.shape[1:]))

    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        return tokens_and_query(self.backbone, self.rendered(*staged))

    def one_step(self, tokens: Tensor, query: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        parts = self._trained()
        components = {name: self._with_frozen(name, parts[name]) for name in self.tables}
        logits = self.head.logits(self._prompted(tokens, query, components), head_parts(parts))
        values = {"ce": self.class_loss(logits, rows, o.mask), "orthogonality": logits.new_zeros(())}
        if o.orthogonality:
            gaps = [orthogonality_gap(part.flatten(2).transpose(0, 1)) for part in components.values()]
            values["orthogonality"] = torch.stack(gaps).sum()
        values["total"] = values["ce"] + o.orthogonality * values["orthogonality"]
        return descend(values, parts, self.adam, o)

    def _trained(self) -> dict[str, Part]:
        """What the current task trains: its own components, and the head."""
        count = self.tables["keys"].count
        own = torch.arange(max(0, count - self.options.components), count, device=self.backbone.device)
        parts = {f"head.{name}": part for name, part in self.head.trained().items()}
        return parts | {name: Part.of_rows(table.rows, own, fixed=True) for name, table in self.tables.items()}

    def _with_frozen(self, name: str, part: Part) -> Tensor:
        """All rows of a table, those of the current task through their leaf."""
        return torch.cat([self.tables[name].rows[: -len(part.leaf)], part.leaf])

    def _prompted(self, tokens: Tensor, query: Tensor, components: dict[str, Tensor]) -> Tensor:
        """Class feature `[B, D]` with every sample's own mixture as prefix."""
        weights = component_weights(query, components["attention"], components["keys"])
        return self.backbone.encode(tokens, by_block(mixed(weights, components["prompts"]))).feature

    def encode(self, inputs: Tensor) -> Tensor:
        return self.backbone.features(inputs)

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        tokens = self.backbone.embed(self.evaluation_input(pixels))
        query = self.backbone.encode(tokens).feature if encoded is None else encoded
        components = {name: table.rows for name, table in self.tables.items()}
        return self.head.logits(self._prompted(tokens, query, components))

    def trained_tensors(self) -> list[Tensor]:
        return list(leaves(self._trained()).values())

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:
        component = sum(table.rows.shape[1:].numel() for table in self.tables.values())
        total = tasks * self.options.components * component + classes * (self.backbone.width + 1)
        return {"components of all tasks and the head of all classes": total}
