"""GDumb: keeps a balanced memory and nothing else; a network is trained on it when an answer is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from prol.backbones import Backbone, Pixels, ResNet, evaluation_input, require_resnet
from prol.backbones.upload import upload
from prol.class_rows import Contents, Tensors
from prol.labels import Label
from prol.learner import Amount, Footprint, Learner, State
from prol.methods.replay.gdumb_training import MemoryNetwork, TrainingPlan
from prol.methods.replay.sample_memory import SampleMemory, greedy_balance, with_classes_together, without_class
from prol.parts.packing import packed, unpacked
from prol.parts.rows import RowTable


@dataclass(frozen=True)
class GDumbOptions:
    """Dials of GDumb."""

    memory: int = 5000
    """Images that are kept."""
    epochs: int = 30
    """Passes over the memory before an answer."""
    batch: int = 64
    lr: float = 0.05
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        for name in ("memory", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number of at least 0, got {getattr(self, name)}")


class GDumb(Learner):
    """Learning is keeping: as many images of each class as there is room for.

    The first answer after a chunk waits until a network has been trained, from weights drawn from the seed. It is a
    function of the memory and the seed, and no part of the state.
    """

    name: ClassVar[str] = "gdumb"
    family: ClassVar[str] = "replay"
    citation: ClassVar[str] = "Prabhu et al., GDumb, ECCV 2020"
    keeps_samples: ClassVar[bool] = True
    default_backbone: ClassVar[str] = "resnet18_cifar"
    from_scratch: ClassVar[bool] = True
    Options: ClassVar[type] = GDumbOptions
    options: GDumbOptions
    backbone: ResNet

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        resnet = require_resnet(self.name, backbone)
        super().__init__(resnet, options, seed)
        self.memory = SampleMemory(options.memory, resnet.preprocessing.size, resnet.device, greedy_balance)
        self.learnt = RowTable((), torch.device("cpu"), torch.int64)
        self._always = torch.ones((), dtype=torch.bool, device=resnet.device)
        self._drawn_from = seed
        self._answering: MemoryNetwork | None = None

    def _register(self, names: list[Label]) -> None:
        self._answering = None
        super()._register(names)
        self.learnt.append(torch.zeros(len(names)))

    @torch.no_grad()
    def _learn_chunk(self, pixels: Pixels, rows: Tensor) -> None:
        images = (self._prepared(pixels) * 255).round().to(torch.uint8)
        insertion = self.memory.plan(rows.tolist(), self.random)
        self._answering = None
        slots, classes = (upload(tensor, self.backbone.device) for tensor in (insertion.slots, rows))
        self.memory.write(slots, classes, images, {}, self._always)
        self.memory.commit(insertion)
        self.learnt.rows.index_add_(0, rows, torch.ones_like(rows))

    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        self._learn_chunk(pixels, rows.cpu())

    def _prepared(self, pixels: Pixels) -> Tensor:
        return evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:  # noqa: ARG002
        return self._trained_network().logits(self._prepared(pixels))

    def _trained_network(self) -> MemoryNetwork:
        """Trained anew where the memory or the classes have changed."""
        if self._answering is None:
            o = self.options
            network = MemoryNetwork(self.backbone, len(self.classes), self._drawn_from)
            network.train(self.memory, TrainingPlan(o.epochs, o.batch, o.lr, o.weight_decay))
            self._answering = network
        return self._answering

    def footprint(self) -> Footprint:
        """What is trained is trained for an answer and not kept."""
        head = len(self.classes) * (self.backbone.width + 1)
        network = Amount.of(*self.backbone.model.parameters())
        trained = Amount(network.count + head, network.bytes + head * self.backbone.dtype.itemsize)
        return Footprint(trained, Amount(0, 0), Amount.of(self.learnt.rows), self.memory.stored())

    def class_counts(self) -> Tensor:
        return self.learnt.rows

    def exemptions(self) -> dict[str, str]:
        return {"nothing_outlives_its_step": f"memory={self.options.memory} images are kept, to be trained on"}

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        return Contents(
            {"learnt": "sum"},
            statistics=("learnt",),
            samples=("memory/*",),
            traces=("which of the other images are kept was drawn while it was there",),
            merged=("images of both are kept, until those of other classes take their place",),
            take_out=self._take_class_out,
            put_together=self._put_classes_together,
        )

    def _take_class_out(self, tensors: Tensors, meta: dict[str, Any], row: int) -> str:
        return f"the {without_class(tensors, meta, row)} images kept of it"

    def _put_classes_together(self, tensors: Tensors, meta: dict[str, Any], source: int, into: int) -> None:  # noqa: ARG002
        with_classes_together(tensors, source, into)

    def _state(self) -> State:
        kept, memory = self.memory.state()
        return packed(memory=kept) | {"learnt": self.learnt.rows}, {"memory": memory, "drawn_from": self._drawn_from}

    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        self._answering, self._drawn_from = None, int(meta["drawn_from"])
        self.memory.load_state(unpacked("memory", tensors), meta["memory"])
        self.learnt.replace(tensors["learnt"])
