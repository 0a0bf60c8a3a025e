"""GDumb: stores a balanced memory and nothing else; a network is trained on it when a prediction is needed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.acceleration import Captured, upload
from prol.backbones.base import Pixels
from prol.backbones.resnet import ResNet, require_resnet
from prol.learner import Learner
from prol.methods.closed_form.random_features import own_generator
from prol.methods.replay.sample_memory import SampleMemory, greedy_balance
from prol.methods.replay.views import PARTIAL, apply_views, draw_views
from prol.options import Count, NotNegative, Options, Repeats
from prol.state import State

MOMENTUM = 0.9
WARM_UP = 0.1
"""The share of all steps in which the rate rises."""
LARGEST_GRADIENT = 10.0


@dataclass(frozen=True)
class GDumbOptions(Options):
    """Options of GDumb."""

    memory: Count = 5000
    """Images that are stored."""
    epochs: Repeats = 30
    """Passes over the memory before a prediction."""
    batch: Count = 64
    """Images in each step of training."""
    lr: NotNegative = 0.05
    """Highest learning rate of a training."""
    weight_decay: NotNegative = 5e-4
    """Share of the weights that is added to their gradient."""


class GDumb(Learner):
    """Learning is storing: as many images of each class as there is room for.

    The first prediction after a chunk waits until a network has been trained, from weights drawn from the seed. It is a
    function of the memory and the seed, and not part of the state.
    """

    name: ClassVar[str] = "gdumb"
    family: ClassVar[str] = "replay"
    citation: ClassVar[str] = "Prabhu et al., GDumb, ECCV 2020"
    keeps_samples: ClassVar[bool] = True
    default_backbone: ClassVar[str] = "resnet18_cifar"
    from_scratch: ClassVar[bool] = True
    encoding: ClassVar[Literal["none", "query", "all"]] = "none"
    Options: ClassVar[type] = GDumbOptions
    options: GDumbOptions
    backbone: ResNet

    def build(self, state: State) -> None:
        b = require_resnet(self.name, self.backbone)
        self.memory = SampleMemory(state, self.options.memory, b.preprocessing.size, greedy_balance)
        self.learnt = state.table(
            "learnt", dtype=torch.int64, kind="statistic", counts=True, device=torch.device("cpu")
        )
        self.drawn_from = self.seed
        state.value("drawn_from", self)
        state.trace(merged="images of both are stored, until those of other classes take their place")
        self._always = torch.ones((), dtype=torch.bool, device=b.device)

    @torch.no_grad()
    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        images = (self.evaluation_input(pixels) * 255).round().to(torch.uint8)
        insertion = self.memory.plan(rows.tolist(), self.random)
        slots, classes = (upload(tensor, self.backbone.device) for tensor in (insertion.slots, rows))
        self.memory.write(slots, classes, images, {}, self._always)
        self.memory.commit(insertion)
        self.learnt.rows.index_add_(0, rows, torch.ones_like(rows))

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        return self.latest(self.trained_network).logits(self.evaluation_input(pixels))

    def trained_network(self) -> MemoryNetwork:
        network = MemoryNetwork(self.backbone, len(self.classes), self.drawn_from)
        network.train(self.memory, self.options)
        return network

    def trained_tensors(self) -> list[Tensor]:
        """What is trained is trained for a prediction and not stored."""
        b = self.backbone
        head = torch.empty(len(self.classes), b.width + 1, dtype=b.dtype, device="meta")
        return [*b.model.parameters(), head]

    def exemptions(self) -> dict[str, str]:
        return {"nothing_outlives_its_step": f"memory={self.options.memory} images are stored, to be trained on"}


def rates(steps: int, lr: float) -> Tensor:
    """The rate of each step, `[steps]`: up in a straight line, then down to zero as a cosine does."""
    rising = max(1, round(WARM_UP * steps))
    falling = max(1, steps - rising)
    values = [(step + 1) / rising for step in range(rising)]
    values += [(1 + math.cos(math.pi * (step + 1) / falling)) / 2 for step in range(falling)]
    return lr * torch.tensor(values[:steps], dtype=torch.float64)


class MemoryNetwork:
    """A network and its head, trained from scratch: a function of a memory and a seed alone."""

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

    def train(self, memory: SampleMemory, options: GDumbOptions) -> None:
        """Stochastic gradient descent with momentum over all of the memory; ValueError where it diverges."""
        count = len(memory)
        batch = min(options.batch, count)
        if not batch:
            return
        steps = count // batch
        pace = upload(rates(options.epochs * steps, options.lr).to(self._dtype), self._device)
        leaves = [*self._network.trained().values(), self._weight, self._bias]
        velocities = [torch.zeros_like(leaf) for leaf in leaves]

        def step(slots: Tensor, rows: Tensor, views: Tensor, lr: Tensor) -> dict[str, Tensor]:
            images = apply_views(PARTIAL, memory.images[slots].to(self._dtype) / 255, views)
            with torch.enable_grad():
                features = self._network.features(images, "train")
                loss = F.cross_entropy(F.linear(features, self._weight, self._bias), rows)
            descend(leaves, velocities, list(torch.autograd.grad(loss, leaves)), lr, options.weight_decay)
            return {"loss": loss.detach()}

        take = Captured(step, self._captured)
        size = memory.images.shape[-1]
        for epoch in range(options.epochs):
            # What the full batches of an epoch omit comes in another one.
            slots = torch.randperm(count, generator=self._random)[: steps * batch]
            views = draw_views(PARTIAL, steps * batch, size, self._random)
            given = [torch.split(upload(t, self._device), batch) for t in (slots, memory.rows_in(slots), views)]
            for number, (some, rows, drawn) in enumerate(zip(*given, strict=True)):
                take(None, some, rows, drawn, pace[epoch * steps + number])
        if not bool(torch.stack([leaf.isfinite().all() for leaf in leaves]).all()):
            raise ValueError(f"training on the memory diverged: use a learning rate below lr={options.lr:g}")


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
