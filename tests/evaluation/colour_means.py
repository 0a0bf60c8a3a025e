"""A learner of a few lines that keeps every promise: it draws random numbers, has state of every kind, and is fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prol.class_rows import Contents
from prol.labels import Label
from prol.learner import Amount, Footprint, Learner, State


@dataclass(frozen=True)
class ColourOptions:
    noise: float = 0.01


class ColourMeans(Learner):
    """Keeps a noisy mean colour for each class."""

    name = "colour_means"
    family = "tests"
    citation = "none"
    Options = ColourOptions

    def __init__(self, backbone: Any, options: ColourOptions, seed: int = 0) -> None:
        super().__init__(backbone, options, seed)
        self.sums = torch.rand(0, 3, dtype=torch.float64)
        self.counts = torch.zeros(0, dtype=torch.float64)
        self.steps = 0
        self.tasks = 0

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        self.sums = torch.cat([self.sums, torch.rand(len(names), 3, dtype=torch.float64, generator=self.random)])
        self.counts = torch.cat([self.counts, torch.ones(len(names), dtype=torch.float64)])

    def _begin_task(self, names: list[Label]) -> None:
        super()._begin_task(names)
        self.tasks += 1

    def _learn(self, pixels: list[Tensor], rows: Tensor) -> None:
        noise = self.options.noise * torch.randn(len(pixels), 3, dtype=torch.float64, generator=self.random)
        self.sums.index_add_(0, rows, self.colours(pixels) + noise)
        self.counts.index_add_(0, rows, torch.ones(len(rows), dtype=torch.float64))
        self.steps += 1

    def _scores(self, pixels: list[Tensor], fixed: Tensor | None = None) -> Tensor:  # noqa: ARG002
        return -torch.cdist(
            self.colours(pixels), self.sums / self.counts[:, None], compute_mode="donot_use_mm_for_euclid_dist"
        )

    @staticmethod
    def colours(pixels: list[Tensor]) -> Tensor:
        return torch.stack([image.double().mean((1, 2)) for image in pixels]) / 255

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        return Contents({"sums": "sum", "counts": "sum"}, statistics=("sums", "counts"), traces=("the noise went on",))

    def report(self) -> dict[str, float]:
        return {"step": float(self.steps)}

    def footprint(self) -> Footprint:
        nothing = Amount(0, 0)
        return Footprint(nothing, nothing, Amount.of(self.sums, self.counts), nothing)

    def _state(self) -> State:
        return {"sums": self.sums, "counts": self.counts}, {"steps": self.steps, "tasks": self.tasks}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self.sums, self.counts = tensors["sums"], tensors["counts"]
        self.steps, self.tasks = meta["steps"], meta["tasks"]


def colour_means(backbone: Any, seed: int = 0) -> ColourMeans:
    return ColourMeans(backbone, ColourOptions(), seed)
