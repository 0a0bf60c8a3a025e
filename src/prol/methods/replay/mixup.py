"""Mixtures of two images, which belong to both of their classes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Mixture:
    """`(1 - weight)` of one sample and `weight` of another, `[N]` each: slots in a memory and class rows."""

    slots: Tensor
    rows: Tensor
    other_slots: Tensor
    other_rows: Tensor
    weights: Tensor

    def parts(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ("slots", "rows", "other_slots", "other_rows", "weights")}

    @classmethod
    def together(cls, one: Mixture, other: Mixture) -> Mixture:
        """Both, one after the other."""
        return cls(**{name: torch.cat([part, other.parts()[name]]) for name, part in one.parts().items()})


def mixed_images(images: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """Of `[N, 3, S, S]` twice."""
    share = weights.to(images).view(-1, 1, 1, 1)
    return images + share * (others - images)


def mixed_cross_entropy(logits: Tensor, rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """The mean over samples of both classes' cross entropy, each with its share; of `[N, C]`."""
    one = F.cross_entropy(logits, rows, reduction="none")
    other = F.cross_entropy(logits, others, reduction="none")
    return one.lerp(other, weights.to(logits)).mean()


def mixed_rows(rows: Tensor, others: Tensor, weights: Tensor) -> Tensor:
    """Class rows `[N]`; a mixture of two classes is one of its own, with a number below 0."""
    alone = -1 - torch.arange(len(rows), device=rows.device)
    return torch.where((weights > 0) & (rows != others), alone, rows)


def draw_beta(alpha: float, count: int, random: torch.Generator) -> Tensor:
    """`[count]` numbers from Beta(alpha, alpha), float64 (Jöhnk 1964)."""
    drawn = torch.empty(0, dtype=torch.float64)
    while len(drawn) < count:
        x, y = torch.rand(2, 4 * count, generator=random, dtype=torch.float64) ** (1 / alpha)
        fits = (x + y > 0) & (x + y <= 1)
        drawn = torch.cat([drawn, (x / (x + y))[fits]])
    return drawn[:count]
