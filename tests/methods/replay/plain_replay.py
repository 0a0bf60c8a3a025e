"""Training on a stream and a memory of it as a plain torch program, fed with the numbers that a learner draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import prol
from backbones.plain_resnet import PlainResNet
from methods.small_streams import pictures
from prol.backbones import ResNet
from prol.learner import Learner
from prol.methods.replay.learner import ReplayLearner

CLASSES = ["g", "b", "e", "a"]
"""Announced in this order, which is that of their rows; none of them is met in it."""
STREAM = (["e", "e", "b"], ["b", "e", "e"], ["a"], ["a", "b", "a", "a"], ["g", "e"], ["a", "a"], ["b", "g", "e"])


def make(method: str, network: ResNet, announced: Sequence[str] = CLASSES, **options: Any) -> ReplayLearner:
    """A learner that knows all classes before it has met one, so that its head does not grow."""
    learner = prol.create(method, network, seed=3, **({"memory": 6, "replay": 4, "lr": 0.01} | options))
    assert isinstance(learner, ReplayLearner)
    learner.boundary(announced)
    return learner


def images_of(labels: Sequence[str], seed: int) -> Any:
    return pictures([ord(label) for label in labels], seed)


@dataclass
class StoredSample:
    image: Tensor
    row: int
    logits: Tensor


class PlainReplay:
    """A network of nn modules, a linear layer, torch's AdamW, and a dict from slots to what is stored."""

    def __init__(self, learner: ReplayLearner) -> None:
        self.network = PlainResNet(learner.backbone.stem_width).double().train()
        self.head = nn.Linear(learner.backbone.width, len(learner.classes)).double()
        o = learner.options
        with torch.no_grad():
            for name, parameter in self.network.weights().items():
                parameter.copy_(learner.network.trained()[name])
            self.head.weight.copy_(learner.heads[0].weight.rows)
            self.head.bias.copy_(learner.heads[0].bias.rows)
        everything = [*self.network.parameters(), *self.head.parameters()]
        self.optimiser = torch.optim.AdamW(everything, lr=o.lr, weight_decay=o.weight_decay, betas=(0.9, 0.999))
        self.stored: dict[int, StoredSample] = {}

    def logits(self, images: Tensor) -> Tensor:
        return self.head(self.network(images))

    def recalled(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Images and class rows, none where there is no slot."""
        if not len(slots):
            return torch.zeros(0, 3, 16, 16, dtype=torch.float64), torch.zeros(0, dtype=torch.int64)
        found = [self.stored[slot] for slot in slots.tolist()]
        return torch.stack([one.image for one in found]), torch.tensor([one.row for one in found])

    def go_down(self, loss: Tensor) -> None:
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()

    def keep(self, slots: Sequence[int], images: Tensor, rows: Tensor, logits: Tensor) -> None:
        """One after the other, so that a later one in the same slot stays."""
        for i, slot in enumerate(slots):
            self.stored[slot] = StoredSample(images[i], int(rows[i]), logits[i].detach().clone())


def upcoming_draw(learner: ReplayLearner, labels: Sequence[str]) -> tuple[dict[str, Tensor], list[int]]:
    """What the learner is about to draw for its step, and the slots that it will name for the chunk."""
    twin = learner.clone()
    rows = torch.tensor([learner.row_of[label] for label in labels])
    drawn = twin.draw(rows)
    return drawn, twin.memory.plan(rows.tolist(), twin.random).named.tolist()


def as_tensors(learner: Learner, labels: Sequence[str], images: Any) -> tuple[Tensor, Tensor]:
    rows = torch.tensor([learner.row_of[label] for label in labels])
    return torch.from_numpy(images).permute(0, 3, 1, 2).double() / 255, rows


def require_alike(learner: ReplayLearner, plain: PlainReplay, close: float = 1e-8) -> None:
    """Weights, head, running statistics, and what is stored."""
    for name, parameter in plain.network.weights().items():
        torch.testing.assert_close(learner.network.trained()[name].detach(), parameter.detach(), rtol=0, atol=close)
    for name, buffer in plain.network.running().items():
        torch.testing.assert_close(learner.network.running()[name], buffer, rtol=0, atol=close)
    head = learner.heads[0]
    torch.testing.assert_close(head.weight.rows, plain.head.weight.detach(), rtol=0, atol=close)
    torch.testing.assert_close(head.bias.rows, plain.head.bias.detach(), rtol=0, atol=close)
    capacity = learner.memory.capacity
    stored = {slot: one for slot, one in plain.stored.items() if slot < capacity}
    assert len(learner.memory) == len(stored)
    for slot, one in stored.items():
        assert int(learner.memory.places.rows[slot]) == one.row
        assert torch.equal(learner.memory.images[slot], (one.image * 255).round().to(torch.uint8))
