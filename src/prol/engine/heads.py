"""Classifier heads that grow with the classes: one LayerNorm + Linear per task, old ones frozen and folded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.classes import AGAINST_IT, AVERAGED, KEPT_ROW, Combine
from prol.engine.adam import Part
from prol.engine.similarity import few_by_many
from prol.state import State
from prol.tables import Table

NORM_EPSILON = 1e-5
CAPACITY, LIVE_CAPACITY, TASK_CAPACITY = 256, 16, 64
"""Classes, classes in training, and tasks before buffers double: on a GPU that stops a stream for seconds."""


def fold(weight: Tensor, bias: Tensor, scale: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
    """Folds a LayerNorm's affine part into the Linear that follows it.

    `weight` `[C, D]`, `bias` `[C]`; `scale` and `shift` `[1, D]`, or `[C, D]` where each row has its own norm.
    """
    return weight * scale, bias + (weight * shift).sum(-1)


class HeadTensors(NamedTuple):
    """What logits are made from: live rows and their norms, and frozen heads in folded form where there are any."""

    weight: Tensor
    bias: Tensor
    scale: Tensor
    shift: Tensor
    folded: tuple[Tensor, Tensor] | None
    columns: Tensor
    """The class row of each column, -1 for columns without a class."""


def head_logits(features: Tensor, head: HeadTensors) -> Tensor:
    """`[B, K]` from features `[B, D]`, -inf in columns without a class."""
    normed = F.layer_norm(features, features.shape[1:], eps=NORM_EPSILON)
    logits = F.linear(normed, *fold(head.weight, head.bias, head.scale, head.shift))
    if head.folded is not None:
        weight, bias = head.folded
        logits = torch.cat([few_by_many(normed, weight) + bias, logits], dim=1)
    return logits.masked_fill(head.columns < 0, -torch.inf)


class TaskHeads:
    """The heads of all tasks; that of the last one is trained, or all of them with `all_live`.

    `weight` `[C, D]` and `bias` `[C]` hold one row per class, `scale` and `shift` `[T, D]` one LayerNorm per task. Live
    rows are a window of fixed length from `live_first` on, which grows by doubling; what lies behind the classes is
    masked.
    """

    def __init__(
        self, state: State, width: int, dtype: torch.dtype, random: torch.Generator, all_live: bool = False
    ) -> None:
        self.width, self.all_live, self._random, device = width, all_live, random, state.device
        head = state.scope("head")
        # Rows of different tasks are behind different LayerNorms, so that they have no mean.
        by_class = partial(head.table, dtype=dtype, kind="parameter", combine="keep", capacity=CAPACITY)
        by_task = partial(head.table, dtype=dtype, kind="parameter", combine=None, capacity=TASK_CAPACITY, grows=False)
        self.weight, self.bias = by_class("weight", width, initial=self._drawn), by_class("bias")
        self.scale, self.shift = by_task("scale", width), by_task("shift", width)
        self.first_rows: list[int] = []
        state.value("first_rows", self, is_row=True)
        state.on_growth(self._follow_growth)
        state.on_load(self._refold)
        state.first_moment_at(lambda: 0 if self.all_live or not self.first_rows else self.first_rows[-1])
        state.trace(removed=AGAINST_IT, merged=KEPT_ROW)
        self._folded_weight = Table((width,), device, dtype, CAPACITY)
        self._folded_bias = Table((), device, dtype, CAPACITY)
        # Where the window stands, on the device: moving it there leaves what was captured valid.
        self._live_first = torch.zeros((), dtype=torch.long, device=device)
        self._count = torch.zeros((), dtype=torch.long, device=device)
        self._offsets = torch.arange(LIVE_CAPACITY, device=device)
        self._by_length = {LIVE_CAPACITY: self._offsets}
        self._live_task = torch.zeros(1, dtype=torch.long, device=device)
        self._task_of = Table((), device, torch.long, CAPACITY)
        self._order: Tensor | None = None  # the column of each class

    # Growth

    def begin_head(self) -> None:
        """Freezes the current head and begins an empty one."""
        if self.first_rows and not self.all_live:
            self._fold_rows(len(self.first_rows) - 1)
        self.first_rows = [*self.first_rows, self.weight.count]
        self.scale.append(torch.ones(1, self.width))
        self.shift.append(torch.zeros(1, self.width))
        self._place_window()

    def _drawn(self, classes: int) -> Tensor:
        return torch.empty(classes, self.width).normal_(0, 0.02, generator=self._random)

    def _follow_growth(self, classes: int) -> None:
        self._task_of.append(torch.full((classes,), len(self.first_rows) - 1))
        if self.first_rows:
            self._place_window()

    def _place_window(self) -> None:
        live_first = 0 if self.all_live else self.first_rows[-1]
        length = LIVE_CAPACITY
        while length < self.weight.count - live_first:
            length *= 2
        # One tensor per length, never freed: a graph captured with a length is valid again when that comes back.
        self._offsets = self._by_length.setdefault(length, torch.arange(length, device=self._offsets.device))
        self._live_first.fill_(live_first)
        self._count.fill_(self.weight.count)
        self._live_task.fill_(len(self.first_rows) - 1)
        self._order = None

    def layout(self) -> tuple[int, ...]:
        """Changes whenever a buffer moves or another shape is computed, which invalidates captured steps."""
        tables = (*self.tables().values(), self._folded_weight, self._task_of)
        return (*(table.moves for table in tables), len(self._offsets), self._frozen())

    def _frozen(self) -> bool:
        return self._folded_weight.count > 0

    # Logits

    def trained(self) -> dict[str, Part]:
        """The live heads' tensors as parts to train."""
        rows = self._window()
        tasks = torch.arange(len(self.scale.buffer), device=rows.device) if self.all_live else self._live_task
        return {
            name: Part.of_rows(table.buffer, tasks if name in ("scale", "shift") else rows, fixed=True)
            for name, table in self.tables().items()
        }

    def _window(self) -> Tensor:
        """Rows of the live window `[L]`, -1 behind the last class."""
        rows = self._live_first + self._offsets
        return torch.where(rows < self._count, rows, -1)

    def columns(self) -> Tensor:
        """The class row of each column of `head_logits` `[K]`, -1 for columns without a class."""
        live = self._window()
        if not self._frozen():
            return live
        old = torch.arange(len(self._folded_bias.buffer), device=live.device)
        return torch.cat([torch.where(old < self._live_first, old, -1), live])

    def column_of(self, rows: Tensor) -> Tensor:
        """The column of each class row `[B]`."""
        if not self._frozen():
            return rows - self._live_first
        return torch.where(rows < self._live_first, rows, len(self._folded_bias.buffer) + rows - self._live_first)

    def tensors(self, live: dict[str, Part] | None = None) -> HeadTensors:
        """What `head_logits` takes, with the leaves of `live`, which `trained` returned, where rows are trained."""
        parts = live or self.trained()
        weight, bias, scale, shift = (parts[name].leaf for name in ("weight", "bias", "scale", "shift"))
        if self.all_live:
            task = self._task_of.buffer[self._window().clamp(min=0)]
            scale, shift = scale[task], shift[task]
        folded = (self._folded_weight.buffer, self._folded_bias.buffer) if self._frozen() else None
        return HeadTensors(weight, bias, scale, shift, folded, self.columns())

    def logits(self, features: Tensor, live: dict[str, Part] | None = None) -> Tensor:
        """`[B, C]` in class order, from features `[B, D]`."""
        return self.in_class_order(head_logits(features, self.tensors(live)))

    def in_class_order(self, wide: Tensor) -> Tensor:
        """`[B, C]` from `[B, K]`, without columns that have no class."""
        if self._order is None:
            self._order = self.column_of(torch.arange(self.weight.count, device=wide.device))
        return wide.index_select(1, self._order)

    # Saving

    def live_tensors(self) -> list[Tensor]:
        """What is trained now, without what the window has beyond it."""
        if not self.first_rows:
            return []
        first, task = (0, 0) if self.all_live else (self.first_rows[-1], len(self.first_rows) - 1)
        return [self.weight.rows[first:], self.bias.rows[first:], self.scale.rows[task:], self.shift.rows[task:]]

    def tables(self) -> dict[str, Table]:
        return {"weight": self.weight, "bias": self.bias, "scale": self.scale, "shift": self.shift}

    def _refold(self) -> None:
        """Stored tables were replaced: frozen heads are folded again."""
        ends = [*self.first_rows[1:], self.weight.count][: len(self.first_rows)]
        sizes = [end - first for first, end in zip(self.first_rows, ends, strict=True)]
        self._task_of.replace(torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.long)))
        for table in (self._folded_weight, self._folded_bias):
            table.truncate(0)
        for task in range(0 if self.all_live else len(self.first_rows) - 1):
            self._fold_rows(task)
        if self.first_rows:
            self._place_window()

    def _fold_rows(self, task: int) -> None:
        ends = [*self.first_rows[1:], self.weight.count]
        part = slice(self.first_rows[task], ends[task])
        weight, bias = fold(self.weight.rows[part], self.bias.rows[part], self.scale.rows[task], self.shift.rows[task])
        self._folded_weight.append(weight)
        self._folded_bias.append(bias)
        self._order = None


class LinearHead:
    """`weight` `[C, D]` and `bias` `[C]`, one row per class, all of them trained.

    Weights begin normal with this deviation, zero when it is 0; biases begin at zero.
    """

    def __init__(
        self,
        state: State,
        width: int,
        dtype: torch.dtype,
        *,
        name: str = "",
        deviation: float = 0.0,
        random: torch.Generator | None = None,
        combine: Combine = "mean",
        grows: Callable[[], bool] | bool = True,
        stored: bool = True,
    ) -> None:
        self.width, self._deviation, self._random = width, deviation, random
        declare = partial(state.table, dtype=dtype, kind="parameter", combine=combine, grows=grows, stored=stored)
        self.weight = declare(f"{name}weight", width, initial=self._drawn)
        self.bias = declare(f"{name}bias")
        if stored:
            state.trace(removed=AGAINST_IT, merged=AVERAGED if combine == "mean" else KEPT_ROW)

    def _drawn(self, classes: int) -> Tensor:
        weight = torch.zeros(classes, self.width)
        return weight.normal_(0, self._deviation, generator=self._random) if self._deviation else weight

    def trained(self) -> dict[str, Part]:
        """Both tables as parts to train."""
        return {name: Part.whole(table.rows) for name, table in self.tables().items()}

    def logits(self, features: Tensor, live: Mapping[str, Part] | None = None) -> Tensor:
        """`[B, C]` from features `[B, D]`, through the leaves of `live` where given."""
        if live is None:
            return F.linear(features, self.weight.rows, self.bias.rows)
        return F.linear(features, live["weight"].leaf, live["bias"].leaf)

    def tables(self) -> dict[str, Table]:
        return {"weight": self.weight, "bias": self.bias}

    def tensors(self) -> list[Tensor]:
        return [self.weight.rows, self.bias.rows]
