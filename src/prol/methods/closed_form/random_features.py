"""Random features: a frozen random layer that makes classes easier to separate by a linear classifier.

Nothing of it is ever trained or stored: the same seed draws the same layer again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from prol.state import State
from prol.tables import weakly


class RandomLayer:
    """Tensors drawn from a seed, which alone is saved.

    Parameters
    ----------
    draw
        Draws the tensors by name.
    stored
        Whether they count among what the learner stores.
    """

    def __init__(
        self,
        state: State,
        seed: int,
        draw: Callable[[torch.Generator], Mapping[str, Tensor]],
        stored: bool = True,
    ) -> None:
        self.drawn_from, self._draw, self.tensors = seed, weakly(draw), draw(own_generator(seed))
        state.value("drawn_from", self, load=self._redraw, agree="seed of the random features")
        state.group("random layer", self._read, lambda _: None, kind="parameter", saved=False, stored=stored)

    def _read(self) -> Mapping[str, Tensor]:
        return self.tensors

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def _redraw(self, seed: int) -> None:
        if seed != self.drawn_from:
            self.drawn_from, self.tensors = seed, self._draw(own_generator(seed))


def own_generator(seed: int) -> torch.Generator:
    """Random numbers that share nothing with those a learner with the same seed draws while it learns."""
    child = torch.randint(2**62, (), generator=torch.Generator().manual_seed(seed), device="cpu")
    return torch.Generator().manual_seed(int(child))


def normal(shape: tuple[int, ...], random: torch.Generator, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Standard normal numbers, drawn in float64 on the CPU so that every device has the same ones."""
    if device.type == "meta":  # shapes only
        return torch.empty(shape, device=device, dtype=dtype)
    return torch.empty(shape, dtype=torch.float64).normal_(generator=random).to(device, dtype)


def uniform(
    shape: tuple[int, ...],
    low: float,
    high: float,
    random: torch.Generator,
    device: torch.device,
    dtype: torch.dtype,
) -> Tensor:
    """Numbers between `low` and `high`, drawn in the same way."""
    if device.type == "meta":
        return torch.empty(shape, device=device, dtype=dtype)
    return torch.empty(shape, dtype=torch.float64).uniform_(low, high, generator=random).to(device, dtype)


def relu_features(x: Tensor, weight: Tensor) -> Tensor:
    """max(0, xW): `[B, D]` and `[D, M]` to `[B, M]`."""
    return (x @ weight).relu_()


def sigmoid_features(x: Tensor, weight: Tensor) -> Tensor:
    """1 / (1 + exp(-xW)): `[B, D]` and `[D, M]` to `[B, M]`."""
    return (x @ weight).sigmoid_()


def fourier_features(x: Tensor, weight: Tensor, phase: Tensor, gamma: float) -> Tensor:
    """√(2/M) cos(√(2γ) xW + b): `[B, D]`, `[D, M]` and `[M]` to `[B, M]`.

    With standard normal W and b from 0 to 2π, the product of two samples' features is near exp(-γ |x - x'|²).
    """
    return cosine_features(x, weight, phase, math.sqrt(2 * gamma)).mul_(math.sqrt(2 / len(phase)))


def cosine_features(x: Tensor, weight: Tensor, phase: Tensor, frequency: float) -> Tensor:
    """cos(f xW + b): `[B, D]`, `[D, M]` and `[M]` to `[B, M]`."""
    return (x @ weight).mul_(frequency).add_(phase).cos_()


def gamma_by_variance(x: Tensor) -> float:
    """1 / (D v) with v the variance of all entries of `x` `[B, D]`; 1 / D where they are all equal."""
    variance = float(x.double().var(correction=0))
    return 1 / (x.shape[1] * (variance or 1.0))
