"""L2P: a pool of prompts, of which each image takes those whose keys are nearest to it."""

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
from prol.methods.gradient import HEAD, GradientLearner, descend, head_parts, tokens_and_query
from prol.methods.prompts.prefixes import Init, PromptOptions, Selection, batch_vote, initial, nearest_keys, pull
from prol.options import Count, NotNegative
from prol.state import State
from prol.tables import Amount


@dataclass(frozen=True)
class L2POptions(PromptOptions):
    """Options of L2P."""

    pool: Count = 10
    """Prompts in the pool, each with a key."""
    length: Count = 5
    """Tokens of a prompt."""
    picks: Count = 5
    """Prompts that an image takes."""
    pull: NotNegative = 0.1
    """Weight of the chosen keys' cosine to the query."""
    init: Init = "wide"
    """How prompts and keys are initialised: uniformly in (-1, 1) (wide), or in (0, 0.01) (small)."""
    prompt_position: Literal["class", "none"] = "class"
    """Whether prompt tokens get a copy of the class token's position."""
    train_selection: Selection = "per_sample"
    """How prompts are selected in training; with batch_vote all samples of a batch take what most of them chose, as in
    the published settings."""
    test_selection: Selection = "per_sample"
    """How prompts are selected for predictions; batch_vote reveals the task of a batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.picks > self.pool:
            raise ValueError(f"picks={self.picks} prompts from a pool of {self.pool}: pick at most pool={self.pool}")


class L2P(GradientLearner):
    """Learning to Prompt: tokens chosen by key join the image's own; their outputs are averaged and classified.

    Keys are compared with the class feature of the untouched network and learn from that alone; prompts and the head
    learn from the cross entropy over the current task's classes.
    """

    name: ClassVar[str] = "l2p"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = "Wang et al., Learning to Prompt for Continual Learning, CVPR 2022"
    encoding: ClassVar[Literal["none", "query", "all"]] = "query"
    needs_blocks: ClassVar[bool] = True
    Options: ClassVar[type] = L2POptions
    options: L2POptions
    backbone: Transformer

    def build(self, state: State) -> None:
        b, o = require_vit(self.name, self.backbone), self.options
        if o.test_selection == "batch_vote":
            self.predict_batch = o.chunk  # a sample's prompts depend on its batch there
        prompts = initial((o.pool, o.length, b.width), o.init, self.random).to(b.device, b.dtype)
        keys = initial((o.pool, b.width), o.init, self.random).to(b.device, b.dtype)
        self.prompts = state.tensor("prompts", prompts, kind="parameter")
        self.keys = state.tensor("keys", keys, kind="parameter")
        self.head = LinearHead(state.scope("head"), b.width, b.dtype)
        self.adam = Adam(state, per_class=HEAD)
        self.train_with(state, "the prompts and their keys, which all classes share, were trained with it")

    def start_task(self) -> None:
        self.adam.reset()

    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        for name, table in (("prompts", self.prompts), ("keys", self.keys)):
            self.adam.make_room(name, table, len(rows) * self.options.picks)
        super().learn_pixels(pixels, rows)

    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        return tokens_and_query(self.backbone, self.rendered(*staged))

    def one_step(self, tokens: Tensor, query: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o = self.options
        with torch.no_grad():
            chosen = self._choose(query, o.train_selection)
        taken = chosen.flatten()
        parts = {"prompts": Part.of_rows(self.prompts, taken), "keys": Part.of_rows(self.keys, taken)}
        parts |= {f"head.{name}": part for name, part in self.head.trained().items()}
        feature = self._prompted(tokens, parts["prompts"].leaf.view(*chosen.shape, *self.prompts.shape[1:]))
        values = {
            "ce": self.class_loss(self.head.logits(feature, head_parts(parts)), rows, o.mask),
            "pull": pull(query, parts["keys"].leaf.view(*chosen.shape, -1)),
        }
        values["total"] = values["ce"] - o.pull * values["pull"]
        return descend(values, parts, self.adam, o)

    def _choose(self, query: Tensor, selection: Selection) -> Tensor:
        """Rows of the prompts that each sample takes, `[B, picks]`."""
        chosen = nearest_keys(query, self.keys, self.options.picks)
        return batch_vote(chosen, self.options.pool) if selection == "batch_vote" else chosen

    def _prompted(self, tokens: Tensor, prompts: Tensor) -> Tensor:
        """Mean output `[B, D]` at the positions of prompts `[B, picks, length, D]`."""
        added = prompts.flatten(1, 2)
        position = self.backbone.class_position
        if self.options.prompt_position == "class" and position is not None:
            added = added + position
        tokens = torch.cat([tokens[:, :1], added, tokens[:, 1:]], dim=1)
        outputs = self.backbone.encode(tokens, rows=1 + added.shape[1]).rows
        assert outputs is not None
        return outputs[:, 1:].mean(1)

    def encode(self, inputs: Tensor) -> Tensor:
        return self.backbone.features(inputs)

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        tokens = self.backbone.embed(self.evaluation_input(pixels))
        query = self.backbone.encode(tokens).feature if encoded is None else encoded
        chosen = self._choose(query, self.options.test_selection)
        return self.head.logits(self._prompted(tokens, self.prompts[chosen]))

    def score_familiarity(self, encoded: Tensor) -> Tensor:
        return cosine_to_all(encoded, self.keys).amax(1)

    def exemptions(self) -> dict[str, str]:
        if self.options.test_selection == "batch_vote":
            return {
                "batch_independence": "test_selection=batch_vote assigns the same prompts to all samples of a batch"
            }
        return {}

    def paper_counts(self, classes: int, tasks: int) -> dict[str, int]:  # noqa: ARG002
        pool = Amount.of(self.prompts, self.keys).count
        return {"pool, keys and the head of all classes": pool + classes * (self.backbone.width + 1)}
