"""DualPrompt: prefixes for all tasks in the first blocks, and each task's own prefixes in the blocks behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones.base import Pixels
from prol.backbones.blocks import Transformer, require_vit
from prol.engine.adam import Adam, Part
from prol.engine.heads import LinearHead
from prol.engine.similarity import cosine_to_all
from prol.methods.gradient import HEAD, GradientLearner, descend, head_parts, leaves, tokens_and_query
from prol.methods.prompts.prefixes import (
    Init,
    PromptOptions,
    Selection,
    batch_vote,
    by_block,
    initial,
    nearest_keys,
    pull,
)
from prol.options import NotNegative, Whole
from prol.state import State


@dataclass(frozen=True)
class DualPromptOptions(PromptOptions):
    """Options of DualPrompt."""

    g_blocks: Whole = 2
    """Blocks with the general prefix, counted from the first."""
    g_length: Whole = 5
    """Positions of the general prefix."""
    e_blocks: Whole = 3
    """Blocks with the task's prefix, which follow those with the general one."""
    e_length: Whole = 5
    """Positions of a task's prefix; published with 5 for CIFAR-100 and 20 for ImageNet-R."""
    pull: NotNegative = 1.0
    """Weight of the task key's cosine to the query."""
    init: Init = "wide"
    """How prefixes and keys are initialised: uniformly in (-1, 1) (wide), or in (0, 0.01) (small)."""
    test_selection: Selection = "per_sample"
    """How the task's prefix is selected for predictions; with batch_vote all samples of a batch take the task that most
    of them chose, as published, which reveals that task."""


class DualPrompt(GradientLearner):
    """General and expert prefixes: a G-prefix that every task trains, an E-prefix and a key for each task.

    In training the E-prefix is the current task's; at test it is that of the key nearest to the image's class feature
    in the untouched network.
    """

    name: ClassVar[str] = "dualprompt"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = (
        "Wang et al., DualPrompt: Complementary Prompting for Rehearsal-Free Continual Learning, ECCV 2022"
    )
    encoding: ClassVar[Literal["none", "query", "all"]] = "query"
    needs_blocks: ClassVar[bool] = True
    Options: ClassVar[type] = DualPromptOptions
    options: DualPromptOptions
    backbone: Transformer

    def build(self, state: State) -> None:
        o = self.options
        b = require_vit(self.name, self.backbone, o.g_blocks + o.e_blocks)
        if o.test_selection == "batch_vote":
            self.predict_batch = o.chunk  # a sample's prefix depends on its batch there
        depth = b.width // b.heads
        general = initial((o.g_blocks, 2, b.heads, o.g_length, depth), o.init, self.random).to(b.device, b.dtype)
        self.general = state.tensor("general", general, kind="parameter")
        expert = (o.e_blocks, 2, b.heads, o.e_length, depth)
        self.expert = state.table("expert", expert, kind="parameter", dtype=b.dtype, combine=None, grows=False)
        self.keys = state.table("keys", b.width, kind="parameter", dtype=b.dtype, combine=None, grows=False)
        self.head = LinearHead(state.scope("head"), b.width, b.dtype)
        self.adam = Adam(state, per_class=HEAD)
        self.train_with(state, "the general prefix, and the prefix and key of its task, were trained with it")

    def start_task(self) -> None:
        self.adam.reset()
        old, init = self.expert.rows, self.options.init
        # A task begins with the last one's prefix, but with its own key.
        self.expert.append(old[-1:] if len(old) else initial((1, *old.shape[1:]), init, self.random))
        self.keys.append(initial((1, self.backbone.width), init, self.random))

    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        return tokens_and_query(self.backbone, self.rendered(*staged))

    def one_step(self, tokens: Tensor, query: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        parts = self._trained()
        expert = parts["expert"].leaf.expand(len(rows), -1, -1, -1, -1, -1)
        feature = self._prompted(tokens, parts["general"].leaf, expert)
        values = {
            "ce": self.class_loss(self.head.logits(feature, head_parts(parts)), rows, o.mask),
            "pull": pull(query, parts["keys"].leaf.expand(len(rows), -1, -1)),
        }
        values["total"] = values["ce"] - o.pull * values["pull"]
        return descend(values, parts, self.adam, o)

    def _trained(self) -> dict[str, Part]:
        """What the current task trains: general prefix, its own prefix and key, and the head."""
        task = torch.full((1,), self.expert.count - 1, device=self.backbone.device)
        parts = {f"head.{name}": part for name, part in self.head.trained().items()}
        return parts | {
            "general": Part.whole(self.general),
            "expert": Part.of_rows(self.expert.rows, task, fixed=True),
            "keys": Part.of_rows(self.keys.rows, task, fixed=True),
        }

    def _prompted(self, tokens: Tensor, general: Tensor, expert: Tensor) -> Tensor:
        """Class feature `[B, D]` with prefixes `[L, 2, H, l, d]` for all and `[B, L, 2, H, l, d]` for each sample."""
        everyone = by_block(general.expand(tokens.shape[0], -1, -1, -1, -1, -1))
        return self.backbone.encode(tokens, everyone | by_block(expert, self.options.g_blocks)).feature

    def encode(self, inputs: Tensor) -> Tensor:
        return self.backbone.features(inputs)

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        tokens = self.backbone.embed(self.evaluation_input(pixels))
        query = self.backbone.encode(tokens).feature if encoded is None else encoded
        task = nearest_keys(query, self.keys.rows)
        if self.options.test_selection == "batch_vote":
            task = batch_vote(task, self.keys.count)
        return self.head.logits(self._prompted(tokens, self.general, self.expert.rows[task[:, 0]]))

    def score_familiarity(self, encoded: Tensor) -> Tensor:
        return cosine_to_all(encoded, self.keys.rows).amax(1)

    def exemptions(self) -> dict[str, str]:
        if self.options.test_selection == "batch_vote":
            return {"batch_independence": "test_selection=batch_vote assigns the same prefix to all samples of a batch"}
        return {}

    def trained_tensors(self) -> list[Tensor]:
        return list(leaves(self._trained()).values()) if self.expert.count else [self.general]

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:
        width = self.backbone.width
        task = self.expert.rows.shape[1:].numel() + width
        total = self.general.numel() + tasks * task + classes * (width + 1)
        return {"prefixes and keys of all tasks and the head of all classes": total}
