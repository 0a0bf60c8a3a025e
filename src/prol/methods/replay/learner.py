"""What methods have in common that train a whole network and keep samples to train on again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from prol.backbones import Backbone, Norms, Pixels, ResNet, Staged, evaluation_input, require_resnet, stage_evaluation
from prol.backbones.upload import upload
from prol.class_rows import AGAINST_IT, AVERAGED, Contents, Tensors
from prol.engine.adam import Adam, Part, part_gradients
from prol.engine.heads import LinearHead
from prol.engine.step import FastStep
from prol.engine.tasks import TaskClock
from prol.labels import Label
from prol.learner import Amount, Footprint, State
from prol.methods.gradient import SteppedLearner
from prol.methods.replay.running_statistics import keep_if, noted
from prol.methods.replay.sample_memory import (
    Choose,
    Insertion,
    SampleMemory,
    reservoir,
    with_classes_together,
    without_class,
)
from prol.parts.packing import packed, unpacked
from prol.parts.rows import RowTable

_CPU = torch.device("cpu")

Drawn = dict[str, Tensor]
"""What a step takes from the host, by name: slots, class rows, random numbers of views."""


@dataclass(frozen=True)
class ReplayOptions:
    """Dials of training on a stream and a memory of it."""

    memory: int = 5000
    """Images that are kept."""
    replay: int = 64
    """Images of the memory in each step."""
    lr: float = 5e-4
    """Learning rate of AdamW."""
    weight_decay: float = 1e-4
    """Share of lr by which weights shrink in each step."""
    task_min_classes: int = 2
    task_min_steps: int = 50

    def __post_init__(self) -> None:
        for name in ("memory", "replay", "task_min_classes", "task_min_steps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "weight_decay"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number of at least 0, got {getattr(self, name)}")


class ReplayLearner(SteppedLearner):
    """A network and a linear head trained from scratch by AdamW, on each chunk and on samples of a bounded memory.

    A method says what it draws for a step, on the host (`_draw`), and its loss terms (`_losses`): operations of fixed
    shape on the device.
    """

    family: ClassVar[str] = "replay"
    keeps_samples: ClassVar[bool] = True
    default_backbone: ClassVar[str] = "resnet18_cifar"
    from_scratch: ClassVar[bool] = True
    uses_tasks: ClassVar[bool] = False
    Options: ClassVar[type] = ReplayOptions
    choose: ClassVar[Choose] = staticmethod(reservoir)
    beta2: ClassVar[float] = 0.999
    options: ReplayOptions
    backbone: ResNet

    def __init__(self, backbone: Backbone, options: Any, seed: int = 0) -> None:
        resnet = require_resnet(self.name, backbone)
        super().__init__(resnet, options, seed)
        self.network = resnet.fork("all")
        self.network.draw_weights(seed)
        self.size = resnet.preprocessing.size
        self.heads = [LinearHead(width, resnet.device, resnet.dtype) for width in self._head_widths()]
        self.extras = self._make_extras()
        self.memory = SampleMemory(options.memory, self.size, resnet.device, type(self).choose)
        self.learnt = RowTable((), _CPU, torch.int64)
        self._counted = RowTable((), resnet.device, torch.int64)  # the same, as steps were really taken
        self.adam = Adam(resnet.device, decay=options.weight_decay, beta2=self.beta2)
        self.clock = TaskClock(options.task_min_classes, options.task_min_steps)
        self._names: tuple[str, ...] = ()
        self._live: list[dict[str, Part]] = []
        self._take_step = FastStep(self._one_step, self._see, resnet.acceleration.captured, options.lr)

    # What a method may say of itself.

    def _head_widths(self) -> list[int]:
        """Widths of the features that each head is on; the first head's scores are the answer."""
        return [self.backbone.width]

    def _make_extras(self) -> dict[str, nn.Module]:
        """Further modules to be trained, on the backbone's device and in its dtype, drawn from the seed."""
        return {}

    @abstractmethod
    def _draw(self, rows: Tensor) -> Drawn:
        """What the step on a chunk of class rows `[B]` takes from the host, all of it still there."""

    @abstractmethod
    def _losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss terms by name, "total" among them, and what is kept of each sample besides its image.

        Args:
            images: of the chunk, `[B, 3, S, S]`, from 0 to 1.
            rows: their class rows `[B]`.
            drawn: what `_draw` gave, on the device.
        """

    def _planned(self, insertion: Insertion) -> Drawn:
        """What `_keep` takes from the host, of the places chosen for the chunk."""
        return {"new_slots": insertion.slots}

    def _keep(self, chunk: Tensor, rows: Tensor, drawn: Drawn, payload: dict[str, Tensor], valid: Tensor) -> None:
        """On the device: puts the chunk, uint8, into the memory, nothing where `valid`, bool, is not."""
        self.memory.write(drawn["new_slots"], rows, chunk, payload, valid)

    # What it may use there.

    def _features(self, images: Tensor, norms: Norms = "train") -> Tensor:
        """`[B, D]`; with "train", running statistics move along."""
        return self.network.features(images, norms)

    def _logits(self, features: Tensor, head: int = 0) -> Tensor:
        """`[B, C]` through a head as it is trained."""
        return self.heads[head].logits(features, self._live[head] if self._live else None)

    def _recalled(self, slots: Tensor) -> Tensor:
        """Images in slots `[n]` of the memory, `[n, 3, S, S]`, from 0 to 1."""
        return self.memory.images[slots].to(self.backbone.dtype) / 255

    def _draw_memory(self, count: int | None = None) -> Drawn:
        """Slots and class rows of so many samples of the memory, as many as `replay` says by default."""
        slots = self.memory.draw(self.options.replay if count is None else count, self.random)
        return {"slots": slots, "memory_rows": self.memory.rows_in(slots)}

    # One step.

    def _register(self, names: list[Label]) -> None:
        super()._register(names)
        for head in self.heads:
            # As torch draws a linear layer: the same variance, from a normal.
            head.append(len(names), self.random, deviation=(3 * head.width) ** -0.5)
        for table in (self.learnt, self._counted):
            table.append(torch.zeros(len(names)))

    def _learn_chunk(self, pixels: Pixels, rows: Tensor) -> None:
        drawn = self._draw(rows)
        insertion = self.memory.plan(rows.tolist(), self.random)
        drawn = {**drawn, **self._planned(insertion)}
        self._names = tuple(drawn)
        made_on = torch.cuda.current_stream(pixels[0].device) if pixels[0].is_cuda else None
        try:
            self._step(partial(self._staged_with, pixels, drawn, made_on), upload(rows, self.backbone.device))
        except ValueError:
            self._reread()
            raise
        self.memory.commit(insertion)
        self.learnt.rows.index_add_(0, rows, torch.ones_like(rows))

    def _settle(self) -> None:
        try:
            super()._settle()
        except ValueError:
            self._reread()
            raise

    def _reread(self) -> None:
        """A step on the device was not taken, which the host had counted on: what it knows is read again."""
        self.memory.reread()
        self.learnt.replace(self._counted.rows)

    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        self._learn_chunk(pixels, rows.cpu())

    def _layout(self) -> tuple[Hashable, ...]:
        return (*super()._layout(), self.adam.moves, self._names)

    def _staged_with(self, pixels: Pixels, drawn: Drawn, made_on: torch.cuda.Stream | None) -> Staged:
        if made_on is not None:
            torch.cuda.current_stream(pixels[0].device).wait_stream(made_on)
        staged = stage_evaluation(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        return (*staged, *(upload(tensor, self.backbone.device) for tensor in drawn.values()))

    def _see(self, *staged: Tensor) -> dict[str, Tensor]:
        """The chunk as bytes of the network's size, as the memory keeps it, and what was drawn."""
        count = len(staged) - len(self._names)
        chunk = (self._rendered(*staged[:count]) * 255).round().to(torch.uint8)
        return {"chunk": chunk} | dict(zip(self._names, staged[count:], strict=True))

    def _one_step(self, chunk: Tensor, *given: Tensor) -> dict[str, Tensor]:
        drawn, rows = dict(zip(self._names, given[:-1], strict=True)), given[-1]
        before = noted(self._running())
        self._live = [head.trained() for head in self.heads]
        values, payload = self._losses(chunk.to(self.backbone.dtype) / 255, rows, drawn)
        valid = values["total"].detach().isfinite()
        self._go_down(values["total"], valid)
        keep_if(valid, self._running(), before)
        self._keep(chunk, rows, drawn, payload, valid)
        self._counted.rows.index_add_(0, rows, valid.long().expand_as(rows))
        return {name: value.detach() for name, value in values.items()}

    def _go_down(self, loss: Tensor, valid: Tensor) -> None:
        """One step of AdamW on the network, what else is trained, and the heads."""
        trunk = {name: Part(p.detach(), p) for name, p in self._trained().items()}
        heads = {f"head{i}.{name}": part for i, live in enumerate(self._live) for name, part in live.items()}
        self._live = []
        gradients = part_gradients(loss, trunk | heads)
        self.adam.begin_step(valid)
        self.adam.update_together("network", list(trunk.values()), [gradients[n] for n in trunk], self.options.lr)
        self.adam.update_all(heads, gradients, self.options.lr)

    def _trained(self) -> dict[str, nn.Parameter]:
        found = dict(self.network.trained())
        for part, module in self.extras.items():
            found |= {f"{part}.{name}": p for name, p in module.named_parameters()}
        return found

    def _running(self) -> dict[str, Tensor]:
        """Running statistics of all norms."""
        found = self.network.running()
        for part, module in self.extras.items():
            found |= {f"{part}.{name}": buffer for name, buffer in module.named_buffers()}
        return found

    def _scores(self, pixels: Pixels, fixed: Tensor | None) -> Tensor:  # noqa: ARG002
        inputs = evaluation_input(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype)
        return self.heads[0].logits(self.network.features(inputs))

    # What it keeps.

    def footprint(self) -> Footprint:
        heads = [table.rows for head in self.heads for table in head.tables().values()]
        trained = Amount.of(*(p.detach() for p in self._trained().values()), *heads)
        statistics = Amount.of(*self._running().values(), self.learnt.rows)
        return Footprint(trained, trained, statistics, self.memory.stored())

    def class_counts(self) -> Tensor:
        return self.learnt.rows

    def exemptions(self) -> dict[str, str]:
        return {"nothing_outlives_its_step": f"memory={self.options.memory} images are kept, to be trained on again"}

    def contents(self, row: int | None = None) -> Contents:  # noqa: ARG002
        mixed = "every weight of the network was trained with it"
        drawn = "which of the other images are kept was drawn while it was there"
        tables = {f"{group}/head*.{name}{rest}": "mean" for name in ("weight", "bias") for group, rest in _HEAD_GROUPS}
        return Contents(
            {**tables, "learnt": "sum"},  # type: ignore[dict-item]
            statistics=("learnt", "running/*"),
            samples=("memory/*",),
            traces=(AGAINST_IT, mixed, drawn),
            merged=(AVERAGED, mixed),
            take_out=self._take_class_out,
            put_together=self._put_classes_together,
        )

    def _take_class_out(self, tensors: Tensors, meta: dict[str, Any], row: int) -> str:
        gone = without_class(tensors, meta, row)
        return f"the {gone} images kept of it"

    def _put_classes_together(self, tensors: Tensors, meta: dict[str, Any], source: int, into: int) -> None:  # noqa: ARG002
        with_classes_together(tensors, source, into)

    def _state(self) -> State:
        moments, adam = self.adam.state()
        kept, memory = self.memory.state()
        heads = {f"head{i}.{n}": table.rows for i, head in enumerate(self.heads) for n, table in head.tables().items()}
        weights = {name: p.detach() for name, p in self._trained().items()}
        tensors = packed(heads=heads, weights=weights, running=self._running(), adam=moments, memory=kept)
        meta = {"adam": adam, "memory": memory, "clock": asdict(self.clock), "last": dict(self.report())}
        return tensors | {"learnt": self.learnt.rows}, meta

    @torch.no_grad()
    def _load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        heads = unpacked("heads", tensors)
        for i, head in enumerate(self.heads):
            head.load({name: heads[f"head{i}.{name}"] for name in head.tables()})
        _copy_all(self._trained(), unpacked("weights", tensors))
        _copy_all(self._running(), unpacked("running", tensors))
        self.memory.load_state(unpacked("memory", tensors), meta["memory"])
        for table in (self.learnt, self._counted):
            table.replace(tensors["learnt"])
        self.adam.load_state(unpacked("adam", tensors), meta["adam"])
        self.clock = TaskClock(**meta["clock"])
        self._take_step.restore(meta["last"])


_HEAD_GROUPS = (("heads", ""), ("adam", "/*"))


def _copy_all(homes: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    for name, home in homes.items():
        home.copy_(saved[name])
