"""What the prompt methods of the literature share in training: common dials, and one optimiser step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prol.backbones import Augment, InputRange, ViT
from prol.methods.stepped import SteppedLearner
from prol.parts import losses
from prol.parts.adam import Adam, Part, gathered_rows, part_gradients
from prol.parts.logit_masks import Mask

Selection = Literal["per_sample", "batch_vote"]
Init = Literal["wide", "small"]


@dataclass(frozen=True)
class PromptOptions:
    """Dials that L2P, DualPrompt, CODA-Prompt and ConvPrompt have in common."""

    lr: float = 0.03
    """Nominal learning rate; the effective one is lr x chunk / 256 with lr_scaling."""
    lr_scaling: bool = True
    chunk: int = 10
    """Configured chunk size: the B of lr x B / 256; with a batch vote at test also the evaluation batch."""
    clip: float | None = 1.0
    """Limit on the joint length of all gradients."""
    mask: Mask = "task"
    """Classes that compete in training: the current task's, those in the chunk, or all met so far."""
    augment: Augment = "crop_flip"
    input_range: InputRange = "backbone"
    crop_pct: float | None = None
    task_min_classes: int = 2
    task_min_steps: int = 50
    """Without boundaries: classes a task gathers, and steps after which it counts as settled."""

    def __post_init__(self) -> None:
        self.require_at_least(1, "chunk", "task_min_classes", "task_min_steps")
        self.require_weights("lr")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip must be above 0, got {self.clip}; use clip=none to switch it off")

    @property
    def rate(self) -> float:
        """The effective learning rate."""
        return self.lr * self.chunk / 256 if self.lr_scaling else self.lr

    def require_at_least(self, least: int, *names: str) -> None:
        for name in names:
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def require_weights(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number of at least 0, got {getattr(self, name)}")


def initial(shape: tuple[int, ...], init: Init, random: torch.Generator) -> Tensor:
    """Fresh prompts or keys: uniform in (-1, 1), or in (0, 0.01) as the first publications drew them."""
    low, high = (-1.0, 1.0) if init == "wide" else (0.0, 0.01)
    return torch.empty(shape).uniform_(low, high, generator=random)


def head_parts(parts: Mapping[str, Part]) -> dict[str, Part]:
    """The head's parts under their own names."""
    return {name.removeprefix("head."): part for name, part in parts.items() if name.startswith("head.")}


class QueryLearner(SteppedLearner):
    """One whose prompts are chosen by what the untouched network makes of an image."""

    backbone: ViT

    @torch.no_grad()
    def _see(self, *staged: Tensor) -> dict[str, Tensor]:
        """Tokens `[B, N, D]` and the query `[B, D]`."""
        tokens = self.backbone.embed(self._rendered(*staged))
        return {"tokens": tokens, "query": self.backbone.encode(tokens).feature}


def descend(
    values: Mapping[str, Tensor],
    parts: Mapping[str, Part],
    adam: Adam,
    options: PromptOptions,
    norm_lr_factor: float = 1.0,
) -> dict[str, Tensor]:
    """One Adam step down values["total"], or none where that is not finite; gives the values back.

    Parts named "norm.*", the backbone's LayerNorms, move at a share of the rate.
    """
    valid = values["total"].detach().isfinite()
    gradients = part_gradients(values["total"], parts)
    if options.clip is not None:
        gradients = losses.clip_together(gradients, options.clip, gathered_rows(parts))
    adam.begin_step(valid)
    norms = [name for name in parts if name.startswith("norm.")]
    rate = options.rate * norm_lr_factor
    adam.update_together("norm", [parts[name] for name in norms], [gradients[name] for name in norms], rate)
    adam.update_all({name: part for name, part in parts.items() if name not in norms}, gradients, options.rate)
    lr = torch.full((), options.rate, dtype=torch.float64, device=valid.device)
    return {name: value.detach() for name, value in values.items()} | {"lr": lr}
