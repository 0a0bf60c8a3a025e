"""Methods that descend the gradient of a loss: common options, and one training engine."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from prol.backbones.base import Augment, Pixels, Staged
from prol.backbones.blocks import Transformer
from prol.classes import Combine, Label
from prol.engine.adam import Adam, Part, gathered_rows, part_gradients
from prol.engine.losses import Mask, allowed_classes, clip_together, masked_cross_entropy
from prol.engine.step import FastStep, MakeStaged
from prol.learner import InputOptions, Learner, TaskClock, TaskOptions
from prol.options import ChunkSize, NotNegative, Positive
from prol.state import State

HEAD: Mapping[str, Combine] = {"head.weight": "mean", "head.bias": "mean"}
"""Parts of a linear head, whose moments have one row per class."""


@dataclass(frozen=True)
class StepOptions(InputOptions):
    """Options of a gradient step: its rate, its limit and its input."""

    lr: NotNegative = 0.03
    """Nominal learning rate; the effective one is lr x chunk / 256 with lr_scaling."""
    lr_scaling: bool = True
    """Whether the learning rate is scaled by the chunk size."""
    chunk: ChunkSize = 10
    """Configured chunk size: the B of lr x B / 256."""
    clip: Positive | None = None
    """Limit on the joint norm of all gradients; none for no limit."""
    augment: Augment = "crop_flip"
    """Random crops and flips of training images (crop_flip), or none."""

    @property
    def rate(self) -> float:
        """The effective learning rate."""
        return self.lr * self.chunk / 256 if self.lr_scaling else self.lr


@dataclass(frozen=True)
class TrainingOptions(StepOptions, TaskOptions):
    """Options that methods trained by one cross entropy share."""

    mask: Mask = "task"
    """Classes that compete in training: the current task's, those in the chunk, or all known so far."""


class GradientLearner(Learner):
    """A learner whose updates are gradient steps that do not wait for the device.

    A method calls `train_with` at the end of `build`, and implements `one_step`: operations of fixed shape on the
    device, given what `look_ahead` returned and the chunk's class rows. Where the loss is not finite nothing may move.
    It learns in tasks, unless it sets `uses_tasks` to false and its options lack `TaskOptions`.
    """

    uses_tasks: ClassVar[bool] = True
    encoding: ClassVar[Literal["none", "query", "all"]] = "none"
    options: StepOptions
    clock: TaskClock

    def train_with(self, state: State, shared: str = "") -> None:
        """Declares the clock and the step; `one_step` and `look_ahead` are captured as graphs on a GPU.

        `shared` says which of what was trained with a class all classes share: its trace stays there.
        """
        state.trace(removed=shared, merged=shared)
        o, captured = self.options, self.backbone.acceleration.captured
        tasks = o if isinstance(o, TaskOptions) else TaskOptions()
        self.clock = TaskClock.declared(state, tasks.task_min_classes, tasks.task_min_steps)
        self.take_step = FastStep(self.one_step, self.look_ahead, captured, o.lr, state)

    def one_step(self, *seen: Any, **named: Any) -> dict[str, Tensor]:
        """One step on what `look_ahead` returned and class rows `[B]`: loss terms by name, "total" among them."""
        raise NotImplementedError

    def look_ahead(self, *staged: Tensor) -> dict[str, Tensor]:
        """The part of a step that does not depend on earlier steps; on a GPU it runs while the last step is running."""
        return {"inputs": self.rendered(*staged)}

    def class_loss(self, logits: Tensor, rows: Tensor, mask: Mask) -> Tensor:
        """Mean cross entropy of `[B, C]` over the classes that compete; `rows` `[B]` are the samples' own."""
        return masked_cross_entropy(logits, rows, allowed_classes(mask, rows, self.clock.first_row, len(self.classes)))

    def arrive(self, names: list[Label], boundary: bool = False) -> None:
        if self.uses_tasks:
            super().arrive(names, boundary)
        else:
            self.register(names)

    def layout(self) -> tuple[Hashable, ...]:
        """Which operations a step has and where its buffers are: a captured step holds while this stays the same."""
        return (len(self.classes), self.clock.number, *self.stored.layout())

    def learn_pixels(self, pixels: Pixels, rows: Tensor) -> None:
        self.step(self.staged(pixels), self.backbone.upload(rows))

    def step(self, staged: MakeStaged, rows: Tensor) -> None:
        self.take_step(self.layout(), self.clock.steps, staged, rows)
        self.clock.steps += 1

    def staged(self, pixels: Pixels) -> MakeStaged:
        """A function that puts a chunk on the device, augmented as the options say."""
        if pixels[0].is_cuda:  # made on this stream: the one that is to read them waits for it
            return partial(self._staged_after, torch.cuda.current_stream(pixels[0].device), pixels)
        return partial(self.backbone.stage, pixels, self.preprocessing, self.augmentation)

    def _staged_after(self, stream: torch.cuda.Stream, pixels: Pixels) -> Staged:
        torch.cuda.current_stream(pixels[0].device).wait_stream(stream)
        return self.backbone.stage(pixels, self.preprocessing, self.augmentation)

    @torch.no_grad()
    def rendered(self, *staged: Tensor) -> Tensor:
        return self.backbone.render(staged, self.preprocessing)

    def flush(self) -> None:
        self.take_step.flush()

    def report(self) -> Mapping[str, float]:
        return self.take_step.report()

    def trained_tensors(self) -> Sequence[Tensor]:
        return self.stored.of_kind("parameter")


def tokens_and_query(network: Transformer, inputs: Tensor) -> dict[str, Tensor]:
    """Tokens `[B, N, D]`, and as the query `[B, D]` the class feature of the untouched network."""
    with torch.no_grad():
        tokens = network.embed(inputs)
        return {"tokens": tokens, "query": network.encode(tokens).feature}


def staged_twice(learner: GradientLearner, make: MakeStaged, pixels: Pixels) -> Staged:
    """Inputs for training and, where they differ, for evaluation, of which statistics are taken."""
    staged = make()
    if learner.options.augment == "none":
        return staged
    return (*staged, *learner.backbone.stage(pixels, learner.preprocessing))


def split_staged(staged: Staged) -> list[Staged]:
    """Inputs staged one behind the other, each by itself: each begins with images, which alone have four axes.

    So shapes alone say where one ends: a graph captured for these shapes always has the same split.
    """
    starts = [i for i, tensor in enumerate(staged) if tensor.ndim == 4]
    return [staged[start:end] for start, end in zip(starts, [*starts[1:], len(staged)], strict=True)]


def tokens_twice(learner: GradientLearner, network: Transformer, staged: Staged) -> dict[str, Tensor]:
    """Tokens `[B, N, D]` to train on, and those to take statistics of."""
    with torch.no_grad():
        tokens = [network.embed(learner.rendered(*one)) for one in split_staged(staged)]
        return {"tokens": tokens[0], "plain": tokens[-1]}


def descend(
    values: Mapping[str, Tensor],
    parts: Mapping[str, Part],
    adam: Adam,
    options: StepOptions,
    norm_lr_factor: float = 1.0,
) -> dict[str, Tensor]:
    """One Adam step down values["total"], or none where that is not finite; returns the values and the rate.

    Parts named "norm.*", the backbone's LayerNorms, move at a share of the rate.
    """
    valid = values["total"].detach().isfinite()
    gradients = clipped_gradients(values["total"], parts, options.clip)
    adam.begin_step(valid)
    norms = [name for name in parts if name.startswith("norm.")]
    rate = options.rate * norm_lr_factor
    adam.update_together("norm", [parts[name] for name in norms], [gradients[name] for name in norms], rate)
    adam.update_all({name: part for name, part in parts.items() if name not in norms}, gradients, options.rate)
    return reported(values, options)


def clipped_gradients(total: Tensor, parts: Mapping[str, Part], clip: float | None) -> dict[str, Tensor]:
    """The gradient of each part, their joint norm at most `clip`."""
    gradients = part_gradients(total, parts)
    return gradients if clip is None else clip_together(gradients, clip, gathered_rows(parts))


def reported(values: Mapping[str, Tensor], options: StepOptions) -> dict[str, Tensor]:
    """What a step returns: its loss terms without their gradients, and the rate."""
    lr = torch.full((), options.rate, dtype=torch.float64, device=values["total"].device)
    return {name: value.detach() for name, value in values.items()} | {"lr": lr}


def head_parts(parts: Mapping[str, Part]) -> dict[str, Part]:
    """The head's parts under their own names."""
    return {name.removeprefix("head."): part for name, part in parts.items() if name.startswith("head.")}


def leaves(parts: Mapping[str, Part]) -> dict[str, Tensor]:
    return {name: part.leaf for name, part in parts.items()}
