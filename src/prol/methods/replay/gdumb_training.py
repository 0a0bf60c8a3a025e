"""A network trained from scratch on a memory of samples, as a function of that memory and a seed alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones import ResNet
from prol.backbones.upload import upload
from prol.engine.captured import Captured
from prol.methods.closed_form.random_features import own_generator
from prol.methods.replay.sample_memory import SampleMemory
from prol.methods.replay.views import PARTIAL, apply_views, draw_views

MOMENTUM = 0.9
WARM_UP = 0.1
"""The share of all steps in which the rate rises."""
LARGEST_GRADIENT = 10.0


@dataclass(frozen=True)
class TrainingPlan:
    """How long, in what steps and how fast."""

    epochs: int
    batch: int
    lr: float
    weight_decay: float


def rates(steps: int, lr: float) -> Tensor:
    """The rate of each step, `[steps]`: up in a straight line, then down to zero as a cosine does."""
    rising = max(1, round(WARM_UP * steps))
    falling = max(1, steps - rising)
    values = [(step + 1) / rising for step in range(rising)]
    values += [(1 + math.cos(math.pi * (step + 1) / falling)) / 2 for step in range(falling)]
    return lr * torch.tensor(values[:steps], dtype=torch.float64)


class MemoryNetwork:
    """The network and its head; `train` once, then ask for `logits`."""

    def __init__(self, backbone: ResNet, classes: int, seed: int) -> None:
        self._random = own_generator(seed)
        self._network = backbone.fork("all")
        self._network.draw_weights(seed)
        self._device, self._dtype = backbone.device, backbone.dtype
        width = backbone.width
        weight = torch.empty(classes, width).normal_(0, (3 * width) ** -0.5, generator=self._random)
        self._weight = weight.to(self._device, self._dtype).requires_grad_()
        self._bias = torch.zeros(classes, device=self._device, dtype=self._dtype).requires_grad_()
        self._captured = backbone.acceleration.captured

    @torch.no_grad()
    def logits(self, inputs: Tensor) -> Tensor:
        """`[N, C]` from prepared images."""
        return F.linear(self._network.features(inputs), self._weight, self._bias)

    def train(self, memory: SampleMemory, plan: TrainingPlan) -> None:
        """Stochastic gradient descent with momentum over all of the memory; ValueError where it diverges."""
        count = len(memory)
        batch = min(plan.batch, count)
        if not batch:
            return
        steps = count // batch
        pace = upload(rates(plan.epochs * steps, plan.lr).to(self._dtype), self._device)
        leaves = [*self._network.trained().values(), self._weight, self._bias]
        velocities = [torch.zeros_like(leaf) for leaf in leaves]

        def step(slots: Tensor, rows: Tensor, views: Tensor, lr: Tensor) -> dict[str, Tensor]:
            images = apply_views(PARTIAL, memory.images[slots].to(self._dtype) / 255, views)
            with torch.enable_grad():
                features = self._network.features(images, "train")
                loss = F.cross_entropy(F.linear(features, self._weight, self._bias), rows)
            descend(leaves, velocities, list(torch.autograd.grad(loss, leaves)), lr, plan.weight_decay)
            return {"loss": loss.detach()}

        take = Captured(step, self._captured)
        size = memory.images.shape[-1]
        for epoch in range(plan.epochs):
            # What is left of an epoch when its full batches are taken comes in another one.
            slots = torch.randperm(count, generator=self._random)[: steps * batch]
            views = draw_views(PARTIAL, steps * batch, size, self._random)
            given = [torch.split(upload(t, self._device), batch) for t in (slots, memory.rows_in(slots), views)]
            for number, (some, rows, drawn) in enumerate(zip(*given, strict=True)):
                take(None, some, rows, drawn, pace[epoch * steps + number])
        if not bool(torch.stack([leaf.isfinite().all() for leaf in leaves]).all()):
            raise ValueError(f"training on the memory diverged: use a learning rate below lr={plan.lr:g}")


@torch.no_grad()
def descend(
    leaves: list[Tensor], velocities: list[Tensor], gradients: list[Tensor], lr: Tensor, weight_decay: float
) -> None:
    """v <- 0.9 v + g + decay w, then w <- w - lr v, in place; g is shortened to a length of 10 where it is longer."""
    length = torch.stack(torch._foreach_norm(gradients)).norm()
    torch._foreach_mul_(gradients, (LARGEST_GRADIENT / length).clamp(max=1))
    torch._foreach_add_(gradients, leaves, alpha=weight_decay)
    torch._foreach_mul_(velocities, MOMENTUM)
    torch._foreach_add_(velocities, gradients)
    torch._foreach_sub_(leaves, torch._foreach_mul(velocities, lr))
