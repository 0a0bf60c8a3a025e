"""What a closed-form classifier is fitted on: statistics of the stream, or stored features of samples."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from prol.backbones.base import Backbone
from prol.classes import Tensors
from prol.methods.closed_form.moments import SPREAD, TAKEN, Totals, TwinMoments
from prol.options import Count
from prol.state import State
from prol.tables import Amount

Memory = Count | Literal["statistics", "none", "all"]
Embed = Callable[[Tensor], Tensor]
"""Features `[B, D]` to what is classified, `[B, M]`."""

DRAWN = "which of the other images are stored was drawn while it was there"
HELD_OUT = "which of the other images are held out would differ"
NOT_SUMS = "cannot be merged: stored features are not sums; learn the images of both with one learner"
NOT_FOUND = "cannot unlearn images: which stored feature is which image's is not known; remove_class erases a class"
_CPU = torch.device("cpu")
_AT_ONCE = 512


class ClassReservoir:
    """Features of `size` samples per class: each so far is stored with the same probability (Vitter 1985).

    `features` is `[C, size, D]`; `task` `[C, size]` says in which task a place was filled, -1 while it is empty.
    """

    def __init__(self, state: State, size: int, width: int, dtype: torch.dtype) -> None:
        self.size = size
        # All places of a class at once: the size depends on the number of classes alone.
        by_class = partial(state.table, kind="sample", combine="keep", writes="chunk")
        self.features = by_class("features", (size, width), dtype=dtype)
        on_host = partial(by_class, dtype=torch.int64, device=_CPU)
        self.task = on_host("task", size, initial=lambda count: torch.full((count, size), -1))
        self.seen = on_host("met")

    def add(self, features: Tensor, rows: Tensor, task: int, random: torch.Generator) -> None:
        """Draws which of the features `[B, D]` are stored, sample by sample: the same for any chunk size."""
        stored: dict[tuple[int, int], int] = {}
        for sample, row in enumerate(rows.tolist()):
            seen = int(self.seen.rows[row])
            place = seen if seen < self.size else int(torch.randint(seen + 1, (), generator=random))
            if place < self.size:
                stored[row, place] = sample
            self.seen.rows[row] += 1
        if stored:
            row, place = torch.tensor(list(stored)).T
            self.task.rows[row, place] = task
            chosen = features[list(stored.values())].to(self.features.rows)
            self.features.rows[row.to(features.device), place.to(features.device)] = chosen

    def older_than(self, task: int) -> tuple[Tensor, Tensor]:
        """Features `[R, D]` and class rows `[R]` of what was stored before a task."""
        row, place = ((self.task.rows >= 0) & (self.task.rows < task)).nonzero().T.to(self.features.rows.device)
        return self.features.rows[row, place], row


class EveryFeature:
    """Features of all samples `[N, D]` in the order they came, and their class rows `[N]`."""

    def __init__(self, state: State, width: int, dtype: torch.dtype) -> None:
        self._state = state
        appended = partial(state.table, kind="sample", combine=None, grows=False, writes="none")
        self.features, self.rows = appended("features", width, dtype=dtype), appended("rows", dtype=torch.int64)
        state.on_remove(self._remove_class)
        state.on_combine(self._combine_classes)
        state.count_by(self.class_counts)
        state.count_samples_by(self.samples_stored)

    def add(self, features: Tensor, rows: Tensor) -> None:
        self.features.append(features)
        self.rows.append(rows)

    def _remove_class(self, tensors: Tensors, values: dict[str, Any], row: int) -> str:  # noqa: ARG002
        features, of = f"{self._state.prefix}features", f"{self._state.prefix}rows"
        rows = tensors[of]
        tensors[features] = tensors[features][rows != row]
        tensors[of] = rows[rows != row] - (rows[rows != row] > row).long()
        return "the features stored of its images"

    def _combine_classes(self, tensors: Tensors, values: dict[str, Any], source: int, into: int) -> None:  # noqa: ARG002
        rows = tensors[f"{self._state.prefix}rows"]
        rows[rows == source] = into
        rows -= (rows > source).long()

    def class_counts(self) -> Tensor:
        """Samples of each class, `[C]`."""
        return torch.bincount(self.rows.rows, minlength=self._state.classes)

    def samples_stored(self) -> Amount:
        return Amount(self.rows.count, Amount.of(self.features.rows).bytes)

    def exemptions(self, option: str) -> dict[str, str]:
        """Checks of `prol.check_learner` that cannot hold; `option` is what stores the features."""
        reason = f"{option} stores the feature of every sample"
        return {"nothing_outlives_its_step": reason, "memory_is_bounded": reason}


class Recollection:
    """What the classifier is fitted on, by `memory`.

    "statistics": moments of the whole stream. "none": moments of the current task. A number: the same and, from a
    reservoir of so many features per class, those of earlier tasks. "all": moments of all features, which are stored.
    """

    def __init__(
        self, state: State, memory: Memory, backbone: Backbone, embedded: int, accumulate: torch.dtype, twin: bool
    ) -> None:
        self.memory, self.twin, self._embedded, self._accumulate = memory, twin, embedded, accumulate
        self._state = state.scope("recollection")
        moments, samples = self._state.scope("moments"), self._state.scope("kept")
        self.moments = None if memory == "all" else TwinMoments(moments, embedded, accumulate, twin)
        self.every = EveryFeature(samples, backbone.width, backbone.dtype) if memory == "all" else None
        self.reservoir = None
        if isinstance(memory, int):
            self.reservoir = ClassReservoir(samples, memory, backbone.width, backbone.dtype)
        self._state.value("seen", read=self._seen, load=self._set_seen, merge="sum")
        self._state.value("classes", read=self._classes, load=lambda _: None)
        self._state.value("twin", self)
        state.on_load(lambda: None, prepare=self._separate)
        if self.reservoir is not None:
            state.refuse(
                merging=f"with memory={memory} classes cannot be merged: each has its own random sample of images"
            )
        if self.every is None:
            state.on_remove(self._remove_class)
            state.count_by(self.class_counts)
            state.count_samples_by(self.samples_stored)
        state.on_merge(self.require_additive)
        state.trace(removed=self._spread_trace)
        state.trace(removed=self._held_out_trace)
        state.trace(removed=DRAWN if self.reservoir is not None else "")

    def _classes(self) -> int:
        return self._state.classes

    def _held_out_trace(self, row: int | None) -> str:  # noqa: ARG002
        return HELD_OUT if self.twin and self.moments is not None else ""

    def _seen(self) -> int:
        return 0 if self.moments is None else self.moments.seen

    def _set_seen(self, seen: int) -> None:
        if self.moments is not None:
            self.moments.seen = seen

    def _separate(self) -> None:
        if self.moments is not None:
            self.moments.separate(self.twin)

    def begin_task(self) -> None:
        if self.moments is not None and self.memory != "statistics":
            self.moments.clear()

    def add(self, features: Tensor, rows: Tensor, task: int, embed: Embed, random: torch.Generator) -> None:
        """Adds one chunk: features `[B, D]` of the class rows `[B]`."""
        if self.moments is not None:
            self.moments.add(embed(features), rows)
        if self.every is not None:
            self.every.add(features, rows)
        if self.reservoir is not None:
            self.reservoir.add(features, rows, task, random)

    def take_out(self, features: Tensor, rows: Tensor, embed: Embed) -> None:
        """Subtracts samples that were added: features `[B, D]` of the class rows `[B]`."""
        if self.moments is None or self.memory != "statistics":
            raise ValueError(f"with memory={self.memory} images cannot be unlearnt: only memory=statistics adds all up")
        if self.twin:
            raise ValueError(
                "while every fifth image is held out to choose the ridge, it is not known which part an image is in: "
                "give ridge= a number, or wait until a first task of 500 images is over"
            )
        self.moments.fit.subtract(embed(features), rows)
        self.moments.seen -= len(rows)

    def require_additive(self) -> None:
        """Raises a ValueError where its moments cannot be added to another learner's."""
        if self.memory != "statistics":
            raise ValueError(f"with memory={self.memory} learners cannot be merged: only memory=statistics adds all up")
        if self.twin:
            raise ValueError(
                "while every fifth image is held out to choose the ridge, learners cannot be merged: one alone would "
                "have held out other images; give ridge= a number, or continue all from one whose ridge is chosen"
            )

    def _spread_trace(self, row: int | None) -> str:
        parts = [] if self.moments is None or row is None else self.moments.parts().values()
        return SPREAD if any(int(part.counts.rows[row]) > 1 for part in parts) else ""

    def _remove_class(self, tensors: Tensors, values: dict[str, Any], row: int) -> str:
        for part in [] if self.moments is None else self.moments.parts().values():
            values["recollection"]["seen"] -= part.remove_class(tensors, row)
        return TAKEN if self.reservoir is None else f"{TAKEN}, and the features stored of it"

    def samples_seen(self) -> int:
        """How many samples the fit would use, apart from the reservoir."""
        if self.moments is not None:
            return self.moments.seen
        return 0 if self.every is None else self.every.rows.count

    def class_counts(self) -> Tensor | None:
        """Samples of each class in the whole stream `[C]`; None where only the current task is counted."""
        if self.every is not None:
            return self.every.class_counts()
        if self.reservoir is not None:
            return self.reservoir.seen.rows
        return self.moments.counts() if self.moments is not None and self.memory == "statistics" else None

    def merge(self) -> None:
        """Holds nothing out any more."""
        self.twin = False
        if self.moments is not None:
            self.moments.merge()

    def totals(self, task: int, embed: Embed) -> tuple[Totals, Totals | None]:
        """Moments to fit, and those held out for validation; what is stored of tasks before `task` is always fitted."""
        moments = self.moments or self._moments_of_all(embed)
        fit, held = moments.fit.totals(), None if moments.held is None else moments.held.totals()
        if self.reservoir is not None:
            features, rows = self.reservoir.older_than(task)
            fit = fit + Totals.of(embed(features), rows, self._state.classes)
        return fit, held

    def leading_totals(self, task: int, embed: Embed, width: int) -> Totals | None:
        """Moments of the first `width` features, all in one; None where no sample was seen."""
        if not bool(self.counts().any()):
            return None
        if self.memory in ("statistics", "none") and self.moments is not None:  # nothing as large as all of them
            parts = [part.part(0, min(width, part.width)) for part in self.moments.parts().values()]
        else:
            parts = [part for part in self.totals(task, embed) if part is not None]
            parts = [Totals(part.gram[:width, :width], part.sums[:, :width], part.counts) for part in parts]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def counts(self) -> Tensor:
        """Samples of each class that were seen, in the whole stream or in the current task, `[C]`."""
        counts = self.class_counts()
        if counts is None:
            assert self.moments is not None
            counts = self.moments.counts()
        return counts

    def _moments_of_all(self, embed: Embed) -> TwinMoments:
        assert self.every is not None
        state = State(self._state.device)
        moments = TwinMoments(state, self._embedded, self._accumulate, self.twin)
        state.add_classes(self._state.classes)
        features, rows = self.every.features.rows, self.every.rows.rows
        for start in range(0, len(rows), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            moments.add(embed(features[part]), rows[part])
        return moments

    def exemptions(self) -> dict[str, str]:
        """Checks of `prol.check_learner` that cannot hold with samples stored."""
        if isinstance(self.memory, int):
            return {"nothing_outlives_its_step": f"memory={self.memory} stores features of so many samples per class"}
        return {} if self.every is None else self.every.exemptions("memory=all")

    def samples_stored(self) -> Amount:
        if self.every is not None:
            return self.every.samples_stored()
        if self.reservoir is not None:
            count = int((self.reservoir.task.rows >= 0).sum())
            return Amount(count, Amount.of(self.reservoir.features.rows).bytes)
        return Amount(0, 0)
