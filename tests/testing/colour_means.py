"""A learner of a few lines that keeps every promise: it draws random numbers, has state of every kind, and is fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prol.classes import Label
from prol.learner import Learner
from prol.state import State


@dataclass(frozen=True)
class ColourOptions:
    noise: float = 0.01


class ColourMeans(Learner):
    """Stores a noisy mean colour for each class."""

    name = "colour_means"
    family = "tests"
    citation = "none"
    encoding = "none"
    Options = ColourOptions

    def build(self, state: State) -> None:
        self.sums = state.table("sums", 3, dtype=torch.float64, kind="statistic", initial=self.drawn)
        self.counts = state.table(
            "counts", dtype=torch.float64, kind="statistic", initial=lambda count: torch.ones(count)
        )
        self.steps = self.tasks = 0
        state.value("steps", self)
        state.value("tasks", self)
        state.trace(removed="the noise went on")

    def drawn(self, count: int) -> Tensor:
        return torch.rand(count, 3, dtype=torch.float64, generator=self.random)

    def arrive(self, names: list[Label], boundary: bool = False) -> None:
        super().arrive(names, boundary)
        self.tasks += boundary

    def learn_pixels(self, pixels: list[Tensor], rows: Tensor) -> None:
        noise = self.options.noise * torch.randn(len(pixels), 3, dtype=torch.float64, generator=self.random)
        colours = self.colours(pixels)
        if not bool(colours.isfinite().all()):
            raise ValueError("the colours are not finite")
        self.sums.add(rows, colours + noise)
        self.counts.add(rows, torch.ones(len(rows)))
        self.steps += 1

    def scores(self, pixels: list[Tensor], encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        means = self.sums.rows / self.counts.rows[:, None]
        return -torch.cdist(self.colours(pixels), means, compute_mode="donot_use_mm_for_euclid_dist")

    def colours(self, pixels: list[Tensor]) -> Tensor:
        return torch.stack([image.double().mean((1, 2)) for image in pixels]) / 255 / self.preprocessing.std[0]

    def report(self) -> dict[str, float]:
        return {"step": float(self.steps)}


def colour_means(backbone: Any, seed: int = 0) -> ColourMeans:
    return ColourMeans(backbone, ColourOptions(), seed)
