"""Methods that train a whole network and store samples to train on again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prol.backbones.base import Pixels, Staged
from prol.backbones.resnet import Norms, ResNet, require_resnet
from prol.classes import Combine
from prol.engine.adam import Adam, Part, part_gradients
from prol.engine.heads import LinearHead
from prol.engine.losses import mean_over
from prol.engine.step import FastStep
from prol.learner import Learner, TaskClock, TaskOptions
from prol.methods.replay.sample_memory import Insertion, SampleMemory
from prol.options import ChunkSize, Count, NotNegative
from prol.state import State
from prol.tables import Table

Drawn = dict[str, Tensor]
"""What a step takes from the host, by name: slots, class rows, random numbers of views."""
Losses = dict[str, Tensor]
"""Loss terms by name, "total" among them."""
Payload = dict[str, Tensor]
"""What is stored of each sample besides its image."""


@dataclass(frozen=True)
class ReplayOptions(TaskOptions):
    """Options of training on a stream and a memory of it."""

    memory: Count = 5000
    """Images that are stored."""
    replay: ChunkSize = 64
    """Images of the memory in each step."""
    lr: NotNegative = 5e-4
    """Learning rate of AdamW."""
    weight_decay: NotNegative = 1e-4
    """Share of lr by which weights shrink in each step."""


class ReplayLearner(Learner):
    """A network and a linear head trained from scratch by AdamW, on each chunk and on samples of a bounded memory.

    A method implements `draw`, what a step takes from the host, and `losses`, operations of fixed shape on the device.
    """

    family: ClassVar[str] = "replay"
    keeps_samples: ClassVar[bool] = True
    default_backbone: ClassVar[str] = "resnet18_cifar"
    from_scratch: ClassVar[bool] = True
    encoding: ClassVar[Literal["none", "query", "all"]] = "none"
    Options: ClassVar[type] = ReplayOptions
    beta2: ClassVar[float] = 0.999
    options: ReplayOptions
    backbone: ResNet
    clock: TaskClock

    def build(self, state: State) -> None:
        self.train_network(state)

    def train_network(self, state: State, extras: Mapping[str, nn.Module] | None = None, heads: int = 1) -> None:
        """Declares the network, its heads, the memory, the optimiser and the step.

        Parameters
        ----------
        extras
            Further modules to be trained, by name.
        heads
            How many linear heads there are; scores are the first one's.
        """
        b, o = require_resnet(self.name, self.backbone), self.options
        self.network = b.fork("all")
        self.network.draw_weights(self.seed)
        self.size, self.extras = b.preprocessing.size, dict(extras or {})
        # As torch draws a linear layer: the same variance, from a normal.
        head = partial(LinearHead, state.scope("heads"), b.width, b.dtype, deviation=(3 * b.width) ** -0.5)
        self.heads = [head(name=f"head{i}.", random=self.random) for i in range(heads)]
        state.tensors("weights", self.trained, kind="parameter")
        state.tensors("running", self.running, kind="statistic")
        self.learnt = state.table(
            "learnt", dtype=torch.int64, kind="statistic", counts=True, device=torch.device("cpu")
        )
        self._counted = Table((), b.device, torch.int64)  # the same, by steps that were valid
        state.on_growth(self._counted.grow)
        state.on_load(lambda: self._counted.replace(self.learnt.rows))
        mixed = "every weight of the network was trained with it"
        state.trace(removed=mixed, merged=mixed)
        self.memory = SampleMemory(state, o.memory, self.size)
        moments: dict[str, Combine] = {f"head{i}.{name}": "mean" for i in range(heads) for name in ("weight", "bias")}
        self.adam = Adam(state, per_class=moments, decay=o.weight_decay, beta2=self.beta2)
        self.clock = TaskClock.declared(state, o.task_min_classes, o.task_min_steps)
        self.take_step = FastStep(self.one_step, self.look_ahead, b.acceleration.captured, o.lr, state)
        self.names: tuple[str, ...] = ()
        """What was drawn for the current step."""
        self.live: list[dict[str, Part]] = []
        """The heads' parts during a step."""

    # What a method implements.

    def draw(self, rows: Tensor) -> Drawn:
        """What the step on a chunk of class rows `[B]` takes from the host, all of it still there."""
        raise NotImplementedError

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        """Loss terms, and what is stored of each sample besides its image.

        Parameters
        ----------
        images
            Of the chunk, `[B, 3, S, S]`, from 0 to 1.
        rows
            Their class rows `[B]`.
        drawn
            What `draw` returned, on the device.
        """
        raise NotImplementedError

    def planned(self, insertion: Insertion) -> Drawn:
        """What `store` takes from the host, of the places chosen for the chunk."""
        return {"new_slots": insertion.slots}

    def store(self, chunk: Tensor, rows: Tensor, drawn: Drawn, payload: Payload, valid: Tensor) -> None:
        """On the device: puts the chunk, uint8, into the memory, nothing where `valid`, bool, is false."""
        self.memory.write(drawn["new_slots"], rows, chunk, payload, valid)

    # What it may use there.

    def features(self, images: Tensor, norms: Norms = "train") -> Tensor:
        """`[B, D]`; with "train", running statistics are updated."""
        return self.network.features(images, norms)

    def logits(self, features: Tensor, head: int = 0) -> Tensor:
        """`[B, C]` through a head, in a step as it is trained."""
        return self.heads[head].logits(features, self.live[head] if self.live else None)

    def recalled(self, slots: Tensor) -> Tensor:
        """Images in slots `[n]` of the memory, `[n, 3, S, S]`, from 0 to 1."""
        return self.memory.images[slots].to(self.backbone.dtype) / 255

    def draw_memory(self, count: int | None = None) -> Drawn:
        """Slots and class rows of so many samples of the memory, as many as `replay` says by default."""
        slots = self.memory.draw(self.options.replay if count is None else count, self.random)
        return {"slots": slots, "memory_rows": self.memory.rows_in(slots)}

    # One step.

    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        drawn = self.draw(rows)
        insertion = self.memory.plan(rows.tolist(), self.random)
        drawn = {**drawn, **self.planned(insertion)}
        self.names = tuple(drawn)
        made_on = torch.cuda.current_stream(pixels[0].device) if pixels[0].is_cuda else None
        staged = partial(self.staged, pixels, drawn, made_on)
        try:
            self.take_step(self.layout(), self.clock.steps, staged, self.backbone.upload(rows))
        except ValueError:
            self._reread()
            raise
        self.clock.steps += 1
        self.memory.commit(insertion)
        self.learnt.rows.index_add_(0, rows, torch.ones_like(rows))

    def flush(self) -> None:
        try:
            self.take_step.flush()
        except ValueError:
            self._reread()
            raise

    def _reread(self) -> None:
        """A step the host relied on was not taken on the device: the host reads the device's state again."""
        self.memory.reread()
        self.learnt.replace(self._counted.rows)

    def report(self) -> Mapping[str, float]:
        return self.take_step.report()

    def layout(self) -> tuple[Hashable, ...]:
        """Which operations a step has and where its buffers are: a captured step holds while this stays the same."""
        return (len(self.classes), self.clock.number, *self.stored.layout(), self.names)

    def staged(self, pixels: Pixels, drawn: Drawn, made_on: torch.cuda.Stream | None = None) -> Staged:
        """The chunk and what was drawn, on the device; images that a stream made there are waited for."""
        b = self.backbone
        if made_on is not None:
            torch.cuda.current_stream(pixels[0].device).wait_stream(made_on)
        staged = b.stage(pixels, self.preprocessing)
        return (*staged, *(b.upload(tensor) for tensor in drawn.values()))

    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        """The chunk as bytes of the network's size, as the memory stores it, and what was drawn."""
        count = len(staged) - len(self.names)
        inputs = self.backbone.render(staged[:count], self.preprocessing)
        chunk = (inputs * 255).round().to(torch.uint8)
        return {"chunk": chunk} | dict(zip(self.names, staged[count:], strict=True))

    def one_step(self, chunk: Tensor, *given: Tensor) -> dict[str, Tensor]:
        drawn, rows = dict(zip(self.names, given[:-1], strict=True)), given[-1]
        before = flattened(self.running())
        self.live = [head.trained() for head in self.heads]
        values, payload = self.losses(chunk.to(self.backbone.dtype) / 255, rows, drawn)
        valid = values["total"].detach().isfinite()
        self._descend(values["total"], valid)
        restore_unless(valid, self.running(), before)
        self.store(chunk, rows, drawn, payload, valid)
        self._counted.rows.index_add_(0, rows, valid.long().expand_as(rows))
        return {name: value.detach() for name, value in values.items()}

    def _descend(self, loss: Tensor, valid: Tensor) -> None:
        """One step of AdamW on the network, what else is trained, and the heads."""
        trunk = {name: Part(p.detach(), p) for name, p in self.trained().items()}
        heads = {f"head{i}.{name}": part for i, live in enumerate(self.live) for name, part in live.items()}
        self.live = []
        gradients = part_gradients(loss, trunk | heads)
        self.adam.begin_step(valid)
        self.adam.update_together("network", list(trunk.values()), [gradients[n] for n in trunk], self.options.lr)
        self.adam.update_all(heads, gradients, self.options.lr)

    def trained(self) -> dict[str, nn.Parameter]:
        """The weights of the network and of further modules."""
        found = dict(self.network.trained())
        for part, module in self.extras.items():
            found |= {f"{part}.{name}": p for name, p in module.named_parameters()}
        return found

    def running(self) -> dict[str, Tensor]:
        """Running statistics of all norms."""
        found = self.network.running()
        for part, module in self.extras.items():
            found |= {f"{part}.{name}": buffer for name, buffer in module.named_buffers()}
        return found

    # Predicting and describing.

    def scores(self, pixels: Pixels, encoded: Tensor | None) -> Tensor:  # noqa: ARG002
        return self.heads[0].logits(self.network.features(self.evaluation_input(pixels)))

    def trained_tensors(self) -> list[Tensor]:
        return [*self.trained().values(), *(tensor for head in self.heads for tensor in head.tensors())]

    def exemptions(self) -> dict[str, str]:
        return {"nothing_outlives_its_step": f"memory={self.options.memory} images are stored, to be trained on again"}


def summed(values: Losses) -> Losses:
    """The terms, and their sum as "total"."""
    return values | {"total": torch.stack(list(values.values())).sum()}


def current_cross_entropy(logits: Tensor, rows: Tensor, first_row: int) -> Tensor:
    """Cross entropy among the classes from `first_row` on, over the samples `[N]` that are of them; zero without any.

    `logits` are `[N, C]`, of all classes.
    """
    if logits.shape[1] <= first_row:
        return logits.sum() * 0
    each = F.cross_entropy(logits[:, first_row:], (rows - first_row).clamp(min=0), reduction="none")
    return mean_over(each, rows >= first_row)


def flattened(running: Mapping[str, Tensor]) -> Tensor:
    """A copy of all running statistics, end to end."""
    return torch.cat([tensor.reshape(-1) for tensor in running.values()])


@torch.no_grad()
def restore_unless(valid: Tensor, running: Mapping[str, Tensor], before: Tensor) -> None:
    """Leaves running statistics as they are where `valid`, a bool scalar, else restores what `flattened` returned.

    The host waits for nothing. A choice and not a weighted sum: an invalid step may have made them NaN.
    """
    homes = list(running.values())
    chosen = torch.split(torch.where(valid, flattened(running), before), [home.numel() for home in homes])
    torch._foreach_copy_(homes, [part.view_as(home) for part, home in zip(chosen, homes, strict=True)])
