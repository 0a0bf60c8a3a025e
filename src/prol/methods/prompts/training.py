"""What the prompt methods of the literature share: how fresh prompts begin, and how they are chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prol.methods.gradient import TrainingOptions
from prol.options import Positive

Selection = Literal["per_sample", "batch_vote"]
Init = Literal["wide", "small"]


@dataclass(frozen=True)
class PromptOptions(TrainingOptions):
    """Options that L2P, DualPrompt, CODA-Prompt and ConvPrompt have in common."""

    clip: Positive | None = 1.0
    """Limit on the joint norm of all gradients; none for no limit."""


def initial(shape: tuple[int, ...], init: Init, random: torch.Generator) -> Tensor:
    """Fresh prompts or keys: uniform in (-1, 1), or in (0, 0.01) as the first publications drew them."""
    low, high = (-1.0, 1.0) if init == "wide" else (0.0, 0.01)
    return torch.empty(shape).uniform_(low, high, generator=random)
