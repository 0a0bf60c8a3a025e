"""EASE: one adapter per task spans its own feature space; class means in all of them give the scores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from prol.backbones.base import Pixels
from prol.backbones.blocks import Transformer, require_vit
from prol.engine.heads import LinearHead
from prol.engine.sgd import SGD
from prol.engine.similarity import cosine_to_all, unit
from prol.engine.step import MakeStaged
from prol.methods.adapters.class_statistics import Prototypes
from prol.methods.adapters.modules import Adapter, AdapterOptions, TaskModules, require_one_per_task
from prol.methods.gradient import HEAD, GradientLearner, clipped_gradients, leaves, reported, staged_twice, tokens_twice
from prol.options import Count, NotNegative
from prol.state import State


@dataclass(frozen=True)
class EASEOptions(AdapterOptions):
    """Options of EASE."""

    bottleneck: Count = 64
    """Width of an adapter's hidden layer."""
    scale: NotNegative = 0.1
    """Weight of an adapter's output beside the MLP."""
    alpha: NotNegative = 0.1
    """Weight of the mean cosine in the feature spaces of other tasks, beside that in the class's own."""
    weight_decay: NotNegative = 5e-4
    """Weight decay of the adapter; the head has none."""


def subspace_scores(features: Tensor, prototypes: Tensor, filled: Tensor, own: Tensor, alpha: float) -> Tensor:
    """Scores `[B, C]` of features `[T, B, D]` against class means `[T, C, D]`.

    The cosine in a class's own feature space `own` `[C]`, plus alpha times its mean over the other spaces; those not
    `filled`, bool `[T]`, hold no class mean yet and do not count.
    """
    cosines = unit(features) @ unit(prototypes).mT
    home = torch.arange(len(cosines), device=own.device).unsqueeze(1) == own
    other = filled.unsqueeze(1) & ~home
    weight = home + alpha * other / other.sum(0).clamp(min=1)
    return (cosines * weight.unsqueeze(1)).sum(0)


class EASE(GradientLearner):
    """Task adapters that are never changed afterwards, and cosine to class means in every adapter's feature space."""

    name: ClassVar[str] = "ease"
    family: ClassVar[str] = "adapters"
    citation: ClassVar[str] = "Zhou et al., Expandable Subspace Ensemble for Class-Incremental Learning, CVPR 2024"
    needs_blocks: ClassVar[bool] = True
    Options: ClassVar[type] = EASEOptions
    options: EASEOptions
    backbone: Transformer

    def build(self, state: State) -> None:
        vit, o = require_vit(self.name, self.backbone), self.options
        adapter = Adapter(vit.width, vit.depth, o.bottleneck, o.scale)
        self.adapters = TaskModules(state.scope("adapters"), vit, adapter)
        self.head = LinearHead(state.scope("head"), vit.width, vit.dtype)
        self.prototypes: list[Prototypes] = []
        self.first_rows: list[int] = []
        state.value("first_rows", self, is_row=True)
        state.on_load(lambda: require_one_per_task(self.adapters, self.first_rows), prepare=self._match_spaces)
        self.sgd = SGD(state, HEAD)
        self.train_with(
            state, "the adapter of its task, and those of later ones if it came again, were trained with it"
        )

    def start_task(self) -> None:
        """A fresh adapter with an empty feature space; the head only served to train the last one."""
        self.sgd.reset()
        self.adapters.append(self.adapters.module.draw(self.random))
        self.first_rows = [*self.first_rows, len(self.classes)]
        self.stored.overwrites("head")
        for table in self.head.tables().values():
            table.replace(torch.zeros_like(table.rows))
        self._match_spaces()
        for table in self.prototypes[-1].tables().values():
            table.grow(len(self.classes))

    def _match_spaces(self) -> None:
        """One feature space for each task."""
        for task in range(len(self.first_rows), len(self.prototypes)):
            self.stored.scope(f"prototypes{task}").drop()
        del self.prototypes[len(self.first_rows) :]
        for task in range(len(self.prototypes), len(self.first_rows)):
            self.prototypes.append(Prototypes(self.stored.scope(f"prototypes{task}"), self.backbone.width))

    # One step

    def staged(self, pixels: Pixels) -> MakeStaged:
        return partial(staged_twice, self, super().staged(pixels), pixels)

    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        return tokens_twice(self, self.backbone, staged)

    def one_step(self, tokens: Tensor, plain: Tensor, rows: Tensor) -> dict[str, Tensor]:
        o, adapter, head = self.options, self.adapters.trained(), self.head.trained()
        parts = adapter | {f"head.{name}": part for name, part in head.items()}
        logits = self.head.logits(self.adapters.features(tokens, leaves(adapter)), head)
        loss = self.class_loss(logits, rows, o.mask)
        valid = loss.detach().isfinite()
        gradients = clipped_gradients(loss, parts, o.clip)
        with torch.no_grad():
            for space, features in zip(self.prototypes, self._all_features(plain), strict=True):
                space.add(features, rows, valid)
        for name, part in parts.items():
            decay = 0.0 if name.startswith("head.") else o.weight_decay
            self.sgd.update(name, part, gradients[name], o.rate, decay, valid)
        return reported({"ce": loss, "total": loss}, o)

    def _all_features(self, tokens: Tensor) -> Tensor:
        """Features in every task's space, `[T, B, D]`."""
        return torch.stack(
            [self.adapters.features(tokens, self.adapters.of(task)) for task in range(self.adapters.count)]
        )

    # Predicting

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        everywhere, measured, own = self.latest(self._means)
        features = self._all_features(self.backbone.embed(self.evaluation_input(pixels))).double()
        scores = subspace_scores(features, everywhere, measured.any(1), own, self.options.alpha)
        return scores.masked_fill(~measured.any(0), -torch.inf)  # announced, but nothing seen of it yet

    def familiarity_of(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:
        return self.scores(pixels, encoded).amax(1)

    def _means(self) -> tuple[Tensor, Tensor, Tensor]:
        """Class means in every space `[T, C, D]`, which were measured `[T, C]`, and each class's own space `[C]`."""
        means = torch.stack([space.means() for space in self.prototypes])
        measured = torch.stack([space.measured() for space in self.prototypes])
        rows = torch.arange(len(self.classes), device=means.device)
        own = torch.bucketize(rows, torch.tensor(self.first_rows[1:], device=means.device), right=True)
        return complete(means, measured, own), measured, own

    def trained_tensors(self) -> list[Tensor]:
        return [*self.adapters.current(), *(rows[self.clock.first_row :] for rows in self.head.tensors())]


def complete(means: Tensor, measured: Tensor, own: Tensor) -> Tensor:
    """Class means in every feature space, `[T, C, D]`, with those never `measured` (bool `[T, C]`) estimated.

    A class c without a mean in space t gets sum_n w_n means[t, n] over the classes n that have one there, with
    w = softmax_n cos(means[s, c], means[s, n]) in the class's own space s = own[c]; `own` is `[C]`.
    """
    completed = means.clone()
    for space in range(len(means)):
        known = measured[space]
        for home in torch.unique(own).tolist():
            missing, others = (own == home) & measured[home] & ~known, known & measured[home]
            if bool(missing.any()) and bool(others.any()):
                alike = cosine_to_all(means[home, missing], means[home, others])
                completed[space, missing] = alike.softmax(1) @ means[space, others]
    return completed
