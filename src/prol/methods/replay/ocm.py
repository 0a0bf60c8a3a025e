"""OCM: features that discriminate all images, held where the network of the last task had them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.backbones.resnet import ResNet
from prol.classes import Combine
from prol.engine.heads import LinearHead
from prol.methods.replay.contrast import Contrast, ContrastOptions, Seen, class_contrast, same_class
from prol.methods.replay.learner import Drawn, Losses, Payload, ReplayLearner, summed
from prol.methods.replay.views import CROP_GREY, apply_views
from prol.options import NotNegative, Positive
from prol.state import State
from prol.tables import Kind


@dataclass(frozen=True)
class OCMOptions(ContrastOptions):
    """Options of OCM."""

    lr: NotNegative = 1e-3
    """Learning rate of AdamW."""
    later_scale: Positive = 0.5
    """What the similarity of two images is multiplied with after the first task."""


class OldNetwork:
    """The network, the projector and the head as they were when the last task ended: never trained.

    Until something was copied it knows no class, and nothing is saved.
    """

    def __init__(self, state: State, network: ResNet, projector: nn.Module) -> None:
        self._state = state
        self._network = network.fork("none")
        self._projector = copy.deepcopy(projector).requires_grad_(False)
        self._head: dict[str, Tensor] = {}
        self._declare("old_network", lambda: dict(self._network.model.named_parameters()), "parameter")
        self._declare("old_projector", lambda: dict(self._projector.named_parameters()), "parameter")
        self._declare("old_running", self._network.running, "statistic")
        rows: dict[str, Combine] = {"weight": "keep", "bias": "keep"}
        state.group("old_head", self._read_head, self._load_head, kind="parameter", combine=rows)
        state.trace(
            removed="the network of the task before, which is stored, may have been trained with it",
            merged="the network of the task before has the row of the class that stays, if it had one",
        )

    def _declare(self, name: str, tensors: Callable[[], Mapping[str, Tensor]], kind: Kind) -> None:
        load = partial(_copy_all, tensors)
        self._state.group(name, lambda: tensors() if self.classes else {}, load, kind=kind)

    def _read_head(self) -> dict[str, Tensor]:
        return self._head if self.classes else {}

    def _load_head(self, saved: Mapping[str, Tensor]) -> None:
        rows, shapes = len(saved.get("bias", ())), {name: tuple(tensor.shape) for name, tensor in saved.items()}
        if saved and shapes != {"weight": (rows, self._network.width), "bias": (rows,)}:
            raise ValueError("old_head/weight and old_head/bias do not fit each other and the network")
        self._head = {name: tensor.to(self._network.dtype) for name, tensor in saved.items()}

    @property
    def classes(self) -> int:
        """How many it knows."""
        return len(self._head.get("bias", ()))

    @torch.no_grad()
    def copy_from(self, network: ResNet, projector: nn.Module, head: LinearHead) -> None:
        self._state.overwrites("old_network", "old_projector", "old_running", "old_head")
        self._network.model.load_state_dict(network.model.state_dict())
        self._projector.load_state_dict(projector.state_dict())
        self._head = {name: table.rows.clone() for name, table in head.tables().items()}

    @torch.no_grad()
    def projections_and_logits(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Unit projections `[N, d]` and logits `[N, classes]`, with norms by the running statistics it had."""
        features = self._network.features(images, "eval")
        return F.normalize(self._projector(features)), F.linear(features, self._head["weight"], self._head["bias"])


@torch.no_grad()
def _copy_all(homes: Callable[[], Mapping[str, Tensor]], saved: Mapping[str, Tensor]) -> None:
    for name, tensor in saved.items():
        homes()[name].copy_(tensor)


class OCM(ReplayLearner):
    """The chunk alone in the first task, then the memory too, with targets from the network of the task before."""

    name: ClassVar[str] = "ocm"
    citation: ClassVar[str] = "Guo et al., Online Continual Learning through Mutual Information Maximization, ICML 2022"
    uses_tasks: ClassVar[bool] = True
    Options: ClassVar[type] = OCMOptions
    beta2: ClassVar[float] = 0.99
    options: OCMOptions

    def build(self, state: State) -> None:
        self.contrast = Contrast(self, self.options)
        self.train_network(state, {"projector": self.contrast.projector})
        self.old = OldNetwork(state, self.network, self.contrast.projector)

    def end_task(self) -> None:
        if self.clock.steps:  # a task in which nothing was learnt leaves nothing to hold on to
            self.old.copy_from(self.network, self.contrast.projector, self.heads[0])

    def draw(self, rows: Tensor) -> Drawn:
        drawn = self.contrast.draw(rows)
        if not self.old.classes or not len(self.memory):
            return drawn | {"views": self.contrast.draw_views(len(rows))}
        memory = self.draw_memory(self.contrast.memory_share(rows))
        count = len(memory["slots"])
        turned = {"memory_turned": self.contrast.draw_turned(count)}
        return drawn | memory | turned | {"views": self.contrast.draw_views(count)}

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        seen = self.contrast.see(images, rows, drawn["turned"], drawn["columns"])
        if "slots" in drawn:
            values = {"new": self.contrast.of_chunk(seen, self.options.later_scale)} | self._memory_losses(drawn)
        else:
            values = {"new": self.contrast.of_chunk(seen, 1.0)}
            values["labels"] = F.cross_entropy(self.contrast.viewed_logits(images, drawn), rows)
        return summed(values), {}

    def _memory_losses(self, drawn: Drawn) -> Losses:
        recalled, rows = self.recalled(drawn["slots"]), drawn["memory_rows"]
        seen = self.contrast.see(recalled, rows, drawn["memory_turned"], drawn["columns"])
        views = apply_views(CROP_GREY, recalled, drawn["views"])
        logits = self.logits(self.features(views))
        # Each image for itself, with norms that do not look at the batch: one pass for both.
        projections, old_logits = self.old.projections_and_logits(torch.cat([seen.plain, views]))
        return {
            "all": self.contrast.of_memory(seen, self.options.later_scale),
            "kept": self._old_contrast(seen, projections[: len(seen.plain)]),
            "logits": F.mse_loss(logits[:, : self.old.classes], old_logits[len(seen.plain) :]),
            "labels": F.cross_entropy(logits, rows),
        }

    def _old_contrast(self, seen: Seen, old: Tensor) -> Tensor:
        """The contrast of plain images as projected now with `old`, the old network's projections `[R * N, d]`."""
        similarity = seen.projections[: len(old)] @ old.T
        return class_contrast(similarity, same_class(seen.pseudo), self.options.temperature)
