"""Classifier heads that grow with the classes: one LayerNorm + Linear a task, old ones frozen and folded."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.parts.adam import Part
from prol.parts.rows import RowTable

NORM_EPSILON = 1e-5


def fold(weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """A LayerNorm's affine part put into the Linear behind it.

    `weight` `[C, D]`, `bias` `[C]`; `scale` and `shift` `[1, D]`, or `[C, D]` where rows have norms of their own.
    """
    return weight * scale, bias + (weight * shift).sum(-1)


class TaskHeads:
    """Logits of all heads, concatenated in class order. The head of the last task is the one being trained.

    `weight` `[C, D]` and `bias` `[C]` hold one row a class, `scale` and `shift` `[T, D]` one LayerNorm a task.
    """

    def __init__(self, width: int, device: torch.device, dtype: torch.dtype) -> None:
        self.width = width
        self.weight = RowTable((width,), device, dtype)
        self.bias = RowTable((), device, dtype)
        self.scale = RowTable((width,), device, dtype)
        self.shift = RowTable((width,), device, dtype)
        self.first_rows: list[int] = []
        self._folded_weight = RowTable((width,), device, dtype)
        self._folded_bias = RowTable((), device, dtype)

    def begin_head(self) -> None:
        """Freezes the current head and begins an empty one."""
        if self.first_rows:
            self._fold_rows(len(self.first_rows) - 1)
        self.first_rows.append(self.weight.count)
        self.scale.append(torch.ones(1, self.width))
        self.shift.append(torch.zeros(1, self.width))

    def append(self, classes: int, random: torch.Generator) -> None:
        """Adds rows to the current head: weights normal with deviation 0.02, biases zero."""
        self.weight.append(torch.empty(classes, self.width).normal_(0, 0.02, generator=random))
        self.bias.append(torch.zeros(classes))

    def trained(self, all_heads: bool = False) -> dict[str, Part]:
        """The current head's tensors, or those of all heads, as parts to train."""
        device = self.weight.rows.device
        first_class, first_task = (0, 0) if all_heads else (self.first_rows[-1], len(self.first_rows) - 1)
        classes = torch.arange(first_class, self.weight.count, device=device)
        tasks = torch.arange(first_task, self.scale.count, device=device)
        return {
            name: Part.of_rows(table.rows, tasks if name in ("scale", "shift") else classes)
            for name, table in self.tables().items()
        }

    def tables(self) -> dict[str, RowTable]:
        return {"weight": self.weight, "bias": self.bias, "scale": self.scale, "shift": self.shift}

    def logits(self, features: Tensor, live: dict[str, Part]) -> Tensor:
        """`[B, C]` from features `[B, D]`; heads that are not `live` answer through their folded form."""
        normed = F.layer_norm(features, (self.width,), eps=NORM_EPSILON)
        weight, bias, scale, shift = (live[name].leaf for name in ("weight", "bias", "scale", "shift"))
        if len(scale) > 1:
            task = self._task_of_rows(scale.device)
            scale, shift = scale[task], shift[task]
        answers = F.linear(normed, *fold(weight, bias, scale, shift))
        if len(weight) == self.weight.count:
            return answers
        return torch.cat([F.linear(normed, self._folded_weight.rows, self._folded_bias.rows), answers], dim=1)

    def load(self, tensors: dict[str, Tensor], first_rows: list[int]) -> None:
        """Takes over saved tables, and folds the frozen heads anew."""
        for name, table in self.tables().items():
            table.replace(tensors[name])
        self.first_rows = list(first_rows)
        self._folded_weight.count = self._folded_bias.count = 0
        for task in range(len(first_rows) - 1):
            self._fold_rows(task)

    def _task_of_rows(self, device: torch.device) -> Tensor:
        """Which head each class row belongs to, `[C]`."""
        ends = [*self.first_rows[1:], self.weight.count]
        sizes = [end - first for first, end in zip(self.first_rows, ends, strict=True)]
        return torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)).to(device)

    def _fold_rows(self, task: int) -> None:
        ends = [*self.first_rows[1:], self.weight.count]
        part = slice(self.first_rows[task], ends[task])
        weight, bias = fold(self.weight.rows[part], self.bias.rows[part], self.scale.rows[task], self.shift.rows[task])
        self._folded_weight.append(weight)
        self._folded_bias.append(bias)
