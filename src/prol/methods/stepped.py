"""What learners have in common whose steps go down a gradient without waiting for the device."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from prol.backbones import Pixels, Staged, ViT, render, stage_evaluation
from prol.methods.in_tasks import TaskLearner
from prol.parts.fast_step import FastStep, MakeStaged
from prol.parts.inputs import split_staged, stage_training


class SteppedLearner(TaskLearner):
    """A learner in tasks, whose steps are taken by `_take_step`: `_see` first, which no step changes, then the step."""

    can_diverge: ClassVar[bool] = True
    _take_step: FastStep

    def _learn(self, pixels: Pixels, rows: Tensor) -> None:
        self._step(self._staged(pixels), rows)

    def _step(self, staged: MakeStaged, rows: Tensor) -> None:
        self._take_step(self._layout(), self.clock.steps, staged, rows)
        self.clock.steps += 1

    def _layout(self) -> tuple[Hashable, ...]:
        """Which operations a step has and where its buffers are: what is captured holds while this stays the same."""
        return (len(self.classes), self.clock.number, self.loads)

    def _staged(self, pixels: Pixels) -> MakeStaged:
        """Puts a chunk on the device, augmented as the options say, when it is called."""
        if pixels[0].is_cuda:  # made on this stream: the one that is to read them waits for it
            return partial(self._staged_after, torch.cuda.current_stream(pixels[0].device), pixels)
        return partial(stage_training, pixels, self.preprocessing, self.backbone, self.options.augment, self.random)

    def _staged_after(self, stream: torch.cuda.Stream, pixels: Pixels) -> Staged:
        torch.cuda.current_stream(pixels[0].device).wait_stream(stream)
        return stage_training(pixels, self.preprocessing, self.backbone, self.options.augment, self.random)

    def _see(self, *staged: Tensor) -> dict[str, Tensor]:
        """What of a step does not depend on the steps before."""
        return {"inputs": self._rendered(*staged)}

    def _rendered(self, *staged: Tensor) -> Tensor:
        return render(staged, self.preprocessing, self.backbone.dtype, self.backbone.acceleration)

    def _settle(self) -> None:
        self._take_step.settle()

    def report(self) -> Mapping[str, float]:
        return self._take_step.report()


class StatisticsLearner(SteppedLearner):
    """One that trains on a chunk as it is augmented, and takes statistics of it as evaluation sees it."""

    backbone: ViT

    def _staged(self, pixels: Pixels) -> MakeStaged:
        return partial(self._staged_twice, super()._staged(pixels), pixels)

    def _staged_twice(self, make: MakeStaged, pixels: Pixels) -> Staged:
        """For training and, where that is something else, for evaluation."""
        staged = make()
        if self.options.augment == "none":
            return staged
        return (*staged, *stage_evaluation(pixels, self.preprocessing, self.backbone.device, self.backbone.dtype))

    @torch.no_grad()
    def _see(self, *staged: Tensor) -> dict[str, Tensor]:
        """Tokens `[B, N, D]` to train on, and those to take statistics of."""
        tokens = [self.backbone.embed(self._rendered(*one)) for one in split_staged(staged)]
        return {"tokens": tokens[0], "plain": tokens[-1]}
