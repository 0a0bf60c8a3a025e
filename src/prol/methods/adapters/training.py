"""What the methods with adapters share: common dials, and probabilities over the classes seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from prol.backbones import Augment, InputRange
from prol.engine.adam import Part
from prol.engine.losses import Mask


@dataclass(frozen=True)
class AdapterOptions:
    """Dials that MOS, EASE and LAE have in common."""

    lr: float = 0.03
    """Learning rate in force; with lr_scaling it is lr x chunk / 256."""
    lr_scaling: bool = False
    chunk: int = 10
    clip: float | None = None
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
        self.require_whole(1, "chunk", "task_min_classes", "task_min_steps")
        self.require_amount("lr")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip must be above 0, got {self.clip}; use clip=none to switch it off")

    @property
    def rate(self) -> float:
        """The learning rate in force."""
        return self.lr * self.chunk / 256 if self.lr_scaling else self.lr

    def require_whole(self, least: int, *names: str) -> None:
        for name in names:
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")

    def require_amount(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number of at least 0, got {getattr(self, name)}")

    def require_share(self, *names: str) -> None:
        for name in names:
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, got {getattr(self, name)}")


def leaves(parts: Mapping[str, Part]) -> dict[str, Tensor]:
    return {name: part.leaf for name, part in parts.items()}


def seen_softmax(logits: Tensor, seen: Tensor) -> Tensor:
    """Probabilities `[B, C]` over the classes `seen` `[C]`, zero for the others; all alike if nothing was seen."""
    return logits.masked_fill(~seen, torch.finfo(logits.dtype).min).softmax(1)
