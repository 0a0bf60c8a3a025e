"""FlyPrompt: experts of prompts that follow one another, a router in closed form, and averages of the head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.base import Pixels
from prol.backbones.blocks import Prefix, Transformer, require_vit
from prol.engine.adam import Adam, Part
from prol.engine.heads import LinearHead
from prol.engine.losses import allowed_classes, masked_cross_entropy
from prol.methods.closed_form.moments import Moments, require_usable
from prol.methods.closed_form.random_features import RandomLayer, normal, relu_features
from prol.methods.closed_form.solvers import SolvedHead, ridge
from prol.methods.gradient import HEAD, GradientLearner, StepOptions, descend, head_parts, leaves
from prol.options import Count, NotNegative, Positive, Share
from prol.state import State

AVERAGES = 2
"""Moving averages of the head in each expert: a fast and a slow one."""


@dataclass(frozen=True)
class FlyPromptOptions(StepOptions):
    """Options of FlyPrompt."""

    lr: NotNegative = 0.005
    """Learning rate; with lr_scaling the effective one is lr x chunk / 256."""
    lr_scaling: bool = False
    """Whether the learning rate is scaled by the chunk size."""
    steps: Count = 3
    """Steps on each chunk, each on a new augmentation."""
    mask: Literal["batch", "seen"] = "batch"
    """Classes that compete in training: those in the chunk, or all known so far."""
    expert_samples: Count = 5_000
    """Images after which the next expert begins."""
    experts: Count = 10
    """Maximum number of experts; the last one learns from all further images."""
    length: Count = 20
    """Prompt tokens of an expert in each prompted block."""
    blocks: Count = 5
    """Prompted blocks, counted from the first."""
    fast_decay: Share = 0.9
    """Share of the fast average of the head that stays at each step."""
    slow_decay: Share = 0.99
    """Share of the slow average of the head that stays at each step."""
    features: Count = 10_000
    """Random features of the router."""
    ridge: Positive = 1e4
    """Ridge strength of the router."""


def surest(logits: Tensor, seen: Tensor) -> Tensor:
    """Highest logarithmic probability `[B, C]` that one of H heads gives to each class, from logits `[B, C, H]`.

    Each head's probabilities are over the classes `seen` `[C]`; -inf for the others. The logarithm has the order of the
    probabilities, and in float64 it still tells classes apart whose probabilities round to 1 or 0.
    """
    met = logits.double().masked_fill(~seen.unsqueeze(1), torch.finfo(torch.float64).min)
    return met.log_softmax(1).amax(2).masked_fill(~seen, -torch.inf)


class FlyPrompt(GradientLearner):
    """Experts of prompts, one after another by the number of images; a ridge regression routes an image to one of them.

    All experts share the online head, and each has two moving averages of it. The surest of the three predicts. The
    router regresses the number of the expert that learnt an image on random features of the untouched network.
    """

    name: ClassVar[str] = "flyprompt"
    family: ClassVar[str] = "prompts"
    citation: ClassVar[str] = (
        "Yan et al., FlyPrompt: Brain-Inspired Random-Expanded Routing with Temporal-Ensemble Experts for General "
        "Continual Learning, ICLR 2026"
    )
    encoding: ClassVar[Literal["none", "query", "all"]] = "query"
    needs_blocks: ClassVar[bool] = True
    uses_tasks: ClassVar[bool] = False
    several_steps: ClassVar[bool] = True
    Options: ClassVar[type] = FlyPromptOptions
    options: FlyPromptOptions
    backbone: Transformer

    def build(self, state: State) -> None:
        o = self.options
        b = require_vit(self.name, self.backbone, o.blocks)
        shape = (o.blocks, o.length, b.width)
        self.prompts = state.table("prompts", shape, dtype=b.dtype, kind="parameter", combine=None, grows=False)
        self.prompts.append(torch.empty(1, *shape).uniform_(0, 1, generator=self.random))
        self.head = LinearHead(state.scope("head"), b.width, b.dtype)
        # One row per class, [experts, averages, ...]: the second axis grows with the experts.
        average = state.scope("averages")
        self.averages = {
            name: average.table(
                name, (1, AVERAGES, *inner), dtype=b.dtype, kind="parameter", combine="mean", widens=True
            )
            for name, inner in (("weight", (b.width,)), ("bias", ()))
        }
        self.shares = torch.tensor([1 - o.fast_decay, 1 - o.slow_decay], dtype=b.dtype, device=b.device)
        self.counts = state.table("counts", dtype=torch.int64, kind="statistic", counts=True)
        self.samples = 0
        state.value("samples", self)
        self.layer = RandomLayer(state, self.seed, self._draw)
        self.router = Moments(state.scope("router"), o.features, b.dtype, by_class=False)
        self.router.append()
        self.adam = Adam(state, per_class=HEAD)
        self.train_with(state, "the prompts of its experts were trained with it, and the router's sums hold its images")

    def _draw(self, random: torch.Generator) -> dict[str, Tensor]:
        b = self.backbone
        return {"weight": normal((b.width, self.options.features), random, b.device, b.dtype)}

    # Learning

    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        with torch.no_grad():
            expanded = relu_features(self.encoded(pixels), self.layer["weight"])
        require_usable(expanded)
        self.stored.overwrites("prompts", "head", "averages", "adam")
        if self.prompts.count < min(self.options.experts, 1 + self.samples // self.options.expert_samples):
            self._begin_expert()
        for _ in range(self.options.steps):
            super().learn_pixels(pixels, rows)
        self.flush()  # sums are not copied: nothing may fail once they have changed
        rows = self.backbone.upload(rows)
        self.router.add(expanded, torch.full_like(rows, self.prompts.count - 1))
        self.counts.add(rows, torch.ones_like(rows))
        self.samples += len(rows)

    def _begin_expert(self) -> None:
        """The mean of the earlier experts' prompts, and averages that begin at the online head."""
        self.adam.reset()
        self.clock.begin(len(self.classes))
        self.prompts.append(self.prompts.rows.mean(0, keepdim=True))
        for name, table in self.averages.items():
            online = self.head.tables()[name].rows
            begun = torch.stack([online] * AVERAGES, dim=1).unsqueeze(1)
            table.replace(torch.cat([table.rows, begun], dim=1))
        self.router.append()

    @torch.no_grad()
    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        return {"tokens": self.backbone.embed(self.rendered(*staged))}

    def one_step(self, tokens: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o, parts = self.options, self._trained()
        each = torch.zeros_like(rows)
        feature = self._prompted(tokens, self._prefixes(parts["prompts"].leaf), each)
        logits = self.head.logits(feature, head_parts(parts))
        ce = masked_cross_entropy(logits, rows, allowed_classes(o.mask, rows, 0, len(self.classes)))
        values = descend({"ce": ce, "total": ce}, parts, self.adam, o)
        self._average(ce.detach().isfinite())
        return values

    def _trained(self) -> dict[str, Part]:
        """What the current expert trains: its prompts, and the head."""
        current = torch.full((1,), self.prompts.count - 1, device=self.backbone.device)
        parts = {f"head.{name}": part for name, part in self.head.trained().items()}
        return parts | {"prompts": Part.of_rows(self.prompts.rows, current, fixed=True)}

    @torch.no_grad()
    def _average(self, valid: Tensor) -> None:
        """Moves the current expert's averages towards the online head."""
        for name, table in self.averages.items():
            online, averages = self.head.tables()[name].rows.unsqueeze(1), table.rows[:, -1]
            averages.lerp_(online, (valid * self.shares).view(AVERAGES, *[1] * (averages.ndim - 2)))

    # Predicting

    def _prefixes(self, prompts: Tensor) -> list[Prefix]:
        """Keys and values `[E, H, l, d]` of experts' prompts `[E, L, l, D]` in each prompted block."""
        position = self.backbone.class_position
        tokens = prompts if position is None else prompts + position
        return [self.backbone.token_prefix(block, one) for block, one in enumerate(tokens.unbind(1))]

    def _every_prefix(self) -> list[Prefix]:
        return self._prefixes(self.prompts.rows)

    def _prompted(self, tokens: Tensor, prefixes: list[Prefix], expert: Tensor) -> Tensor:
        """Class feature `[B, D]` of tokens `[B, N, D]` with the prefixes of the expert `[B]` of each."""
        chosen = {block: (keys[expert], values[expert]) for block, (keys, values) in enumerate(prefixes)}
        return self.backbone.encode(tokens, chosen).feature

    def route(self, query: Tensor) -> Tensor:
        """The expert `[B]` of each image, from the untouched network's class feature `[B, D]`."""
        scores = self.latest(self._solved_router).scores(relu_features(query, self.layer["weight"]))
        return scores.argmax(1)

    def _solved_router(self) -> SolvedHead:
        totals = self.router.totals()
        return SolvedHead(ridge(totals, self.options.ridge), None, totals.counts > 0)

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        tokens = self.backbone.embed(self.evaluation_input(pixels))
        if self.prompts.count == 1:
            expert = torch.zeros(tokens.shape[0], dtype=torch.int64, device=tokens.device)
        else:
            expert = self.route(self.backbone.encode(tokens).feature if encoded is None else encoded)
        feature = self._prompted(tokens, self.latest(self._every_prefix), expert)
        return surest(self._head_logits(feature, expert), self.counts.rows > 0)

    def _head_logits(self, feature: Tensor, expert: Tensor) -> Tensor:
        """Logits `[B, C, 3]` of the online head and of the averages of each image's expert `[B]`."""
        weight, bias = (table.rows for table in self.averages.values())
        # Of all experts: one product, which costs less than a head of its own for each image.
        every = F.linear(feature, weight.flatten(0, 2), bias.flatten()).view(-1, *bias.shape)
        averaged = every.gather(2, expert.view(-1, 1, 1, 1).expand(-1, bias.shape[0], 1, AVERAGES)).squeeze(2)
        return torch.cat([self.head.logits(feature).unsqueeze(2), averaged], 2)

    def trained_tensors(self) -> list[Tensor]:
        return list(leaves(self._trained()).values())
