"""What a closed-form classifier is fitted on: statistics of the stream, or features of samples that are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from prol.class_rows import AUGMENTED, Contents, Tensors, Together
from prol.learner import Amount
from prol.parts.class_removal import SPREAD, TAKEN, require_left_over, sums_of, take_out_of_moments
from prol.parts.moments import Totals, TwinMoments
from prol.parts.packing import packed, unpacked
from prol.parts.rows import RowTable
from prol.sums import Sums

Memory = int | Literal["statistics", "none", "all"]
Embed = Callable[[Tensor], Tensor]
"""Features `[B, D]` to what is classified, `[B, M]`."""

MERGING: dict[str, Any] = {
    "tables": ("recollection/moments/*/sums", "recollection/moments/*/counts"),
    "totals": ("recollection/moments/*/gram.*",),
}
"""What of a state that has these under "recollection" adds up with that of another learner."""

_CPU = torch.device("cpu")
_AT_ONCE = 512


def require_memory(memory: Memory) -> None:
    if isinstance(memory, int) and memory < 1:
        raise ValueError(
            f"memory={memory} features a class cannot be kept: give at least 1, or statistics, none or all"
        )


class ClassReservoir:
    """Features of `size` samples a class, each sample of it so far being kept with the same chance (Vitter 1985).

    `features` is `[C, size, D]`; `task` `[C, size]` says in which task a place was filled, -1 while it is empty.
    """

    def __init__(self, size: int, width: int, device: torch.device, dtype: torch.dtype) -> None:
        self.size, self.width = size, width
        self.features = RowTable((size, width), device, dtype)
        self.task = RowTable((size,), _CPU, torch.int64)
        self.met = RowTable((), _CPU, torch.int64)

    def add_classes(self, count: int) -> None:
        # All places of a class at once: what is needed depends on the classes alone.
        self.features.append(torch.zeros(count, self.size, self.width))
        self.task.append(torch.full((count, self.size), -1))
        self.met.append(torch.zeros(count))

    def add(self, features: Tensor, rows: Tensor, task: int, random: torch.Generator) -> None:
        """Draws which of the features `[B, D]` are kept, sample by sample: the same for any chunk size."""
        kept: dict[tuple[int, int], int] = {}
        for sample, row in enumerate(rows.tolist()):
            met = int(self.met.rows[row])
            place = met if met < self.size else int(torch.randint(met + 1, (), generator=random))
            if place < self.size:
                kept[row, place] = sample
            self.met.rows[row] += 1
        if kept:
            row, place = torch.tensor(list(kept)).T
            self.task.rows[row, place] = task
            chosen = features[list(kept.values())].to(self.features.rows)
            self.features.rows[row.to(features.device), place.to(features.device)] = chosen

    def older_than(self, task: int) -> tuple[Tensor, Tensor]:
        """Features `[R, D]` and class rows `[R]` of what was kept before a task."""
        row, place = ((self.task.rows >= 0) & (self.task.rows < task)).nonzero().T.to(self.features.rows.device)
        return self.features.rows[row, place], row

    def tables(self) -> dict[str, RowTable]:
        return {"features": self.features, "task": self.task, "met": self.met}


class EveryFeature:
    """Features of all samples `[N, D]` in the order they came, and their class rows `[N]`."""

    def __init__(self, width: int, device: torch.device, dtype: torch.dtype) -> None:
        self.features = RowTable((width,), device, dtype)
        self.rows = RowTable((), device, torch.int64)

    def add(self, features: Tensor, rows: Tensor) -> None:
        self.features.append(features)
        self.rows.append(rows)

    def tables(self) -> dict[str, RowTable]:
        return {"features": self.features, "rows": self.rows}


class Recollection:
    """What the classifier is fitted on, by `memory`.

    "statistics": moments of the whole stream. "none": moments of the current task. A number: the same and, from a
    reservoir of so many features a class, those of earlier tasks. "all": moments of all features, which are kept.
    """

    def __init__(
        self,
        memory: Memory,
        width: int,
        embedded: int,
        device: torch.device,
        dtype: torch.dtype,
        accumulate: torch.dtype,
        twin: bool,
    ) -> None:
        self.memory, self.twin = memory, twin
        self._moments_with = partial(TwinMoments, embedded, device, accumulate)
        self.moments = None if memory == "all" else self._moments_with(twin)
        self.every = EveryFeature(width, device, dtype) if memory == "all" else None
        self.reservoir = ClassReservoir(memory, width, device, dtype) if isinstance(memory, int) else None
        self.classes = 0

    def add_classes(self, count: int) -> None:
        for part in (self.moments, self.reservoir):
            if part is not None:
                part.add_classes(count)
        self.classes += count

    def begin_task(self) -> None:
        if self.moments is not None and self.memory != "statistics":
            self.moments.clear()

    def add(self, features: Tensor, rows: Tensor, task: int, embed: Embed, random: torch.Generator) -> None:
        """Takes in one chunk: features `[B, D]` of the class rows `[B]`."""
        if self.moments is not None:
            self.moments.add(embed(features), rows)
        if self.every is not None:
            self.every.add(features, rows)
        if self.reservoir is not None:
            self.reservoir.add(features, rows, task, random)

    def take_out(self, features: Tensor, rows: Tensor, embed: Embed) -> None:
        """Takes samples out again that were taken in: features `[B, D]` of the class rows `[B]`."""
        if self.moments is None or self.memory != "statistics":
            raise ValueError(f"with memory={self.memory} images cannot be unlearnt: only memory=statistics adds all up")
        if self.twin:
            raise ValueError(
                "while every fifth image is held out to choose the ridge, nobody knows which to unlearn from where: "
                "give ridge= a number, or wait until a first task of 500 images is over"
            )
        embedded = embed(features)
        require_left_over(self.moments.fit.squares(), embedded)
        self.moments.fit.add(embedded, rows, times=-1)
        self.moments.seen -= len(rows)

    def require_additive(self) -> None:
        """Says why what is remembered cannot be added to what another learner remembers."""
        if self.memory != "statistics":
            raise ValueError(f"with memory={self.memory} learners cannot be merged: only memory=statistics adds all up")
        if self.twin:
            raise ValueError(
                "while every fifth image is held out to choose the ridge, learners cannot be merged: one alone would "
                "have held out other images; give ridge= a number, or let all go on from one whose ridge is settled"
            )

    def contents(
        self, row: int | None, augmented: bool, others: tuple[str, ...] = (), merged: tuple[str, ...] = ()
    ) -> Contents:
        """What the tensors are in a state that has these under "recollection".

        `others` are traces of a class in the rest, `merged` those of one that was two.
        """
        moments = {} if self.moments is None else self.moments.parts()
        tables: dict[str, Together] = {}
        for part in moments:
            tables |= sums_of(f"recollection/moments/{part}/")
        kept = tuple(f"recollection/kept/{name}" for name in self._tables())
        if self.reservoir is not None:
            tables |= dict.fromkeys(kept, "keep")
        spread = row is not None and any(int(part.counts.rows[row]) > 1 for part in moments.values())
        drawn = (
            ("which of the other images are kept was drawn while it was there",) if self.reservoir is not None else ()
        )
        held = ("which of the other images are held out would differ",) if self.twin and moments else ()
        return Contents(
            tables,
            statistics=("recollection/moments/*",),
            samples=kept,
            traces=(*((SPREAD,) if spread else ()), *held, *drawn, *((AUGMENTED,) if augmented else ()), *others),
            merged=merged,
            take_out=self._take_class_out,
            put_together=self._put_classes_together,
            merge_refusal=""
            if self.reservoir is None
            else f"with memory={self.memory} classes cannot be merged: each has a draw of its own images",
        )

    def _take_class_out(self, tensors: Tensors, meta: dict[str, Any], row: int) -> str:
        meta = meta["recollection"]
        for part in {} if self.moments is None else self.moments.parts():
            meta["seen"] -= take_out_of_moments(tensors, f"recollection/moments/{part}/", row)
        meta["classes"] -= 1
        if self.every is None:
            return TAKEN if self.reservoir is None else f"{TAKEN}, and the features kept of it"
        rows = tensors["recollection/kept/rows"]
        tensors["recollection/kept/features"] = tensors["recollection/kept/features"][rows != row]
        tensors["recollection/kept/rows"] = rows[rows != row] - (rows[rows != row] > row).long()
        return "the features kept of its images"

    def _put_classes_together(self, tensors: Tensors, meta: dict[str, Any], source: int, into: int) -> None:
        meta["recollection"]["classes"] -= 1
        if self.every is not None:
            rows = tensors["recollection/kept/rows"]
            rows[rows == source] = into
            rows -= (rows > source).long()

    def samples_seen(self) -> int:
        """How many samples the fit would stand on, apart from the reservoir."""
        if self.moments is not None:
            return self.moments.seen
        return 0 if self.every is None else self.every.rows.count

    def class_counts(self) -> Tensor | None:
        """Samples of each class in the whole stream `[C]`; None where only the current task is remembered."""
        if self.every is not None:
            return torch.bincount(self.every.rows.rows, minlength=self.classes)
        if self.reservoir is not None:
            return self.reservoir.met.rows
        return self.moments.counts() if self.moments is not None and self.memory == "statistics" else None

    def merge(self) -> None:
        """From now on nothing is held out."""
        self.twin = False
        if self.moments is not None:
            self.moments.merge()

    def totals(self, task: int, embed: Embed) -> tuple[Totals, Totals | None]:
        """Moments to fit, and those held out to choose by; what is kept of tasks before `task` is always fitted."""
        moments = self.moments or self._moments_of_all(embed)
        fit, held = moments.fit.totals(), None if moments.held is None else moments.held.totals()
        if self.reservoir is not None:
            features, rows = self.reservoir.older_than(task)
            fit = fit + Totals.of(embed(features), rows, self.classes)
        return fit, held

    def leading_totals(self, task: int, embed: Embed, width: int) -> Totals:
        """Moments of the first `width` features, all in one."""
        if self.memory in ("statistics", "none") and self.moments is not None:  # nothing as large as all of them
            parts = [part.part(0, min(width, part.width)) for part in self.moments.parts().values()]
        else:
            parts = [part for part in self.totals(task, embed) if part is not None]
            parts = [Totals(part.gram[:width, :width], part.sums[:, :width], part.counts) for part in parts]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    def counts(self) -> Tensor:
        """Samples of each class that were met, in the whole stream or in the current task, `[C]`."""
        counts = self.class_counts()
        if counts is None:
            assert self.moments is not None
            counts = self.moments.counts()
        return counts

    def _moments_of_all(self, embed: Embed) -> TwinMoments:
        assert self.every is not None
        moments = self._moments_with(self.twin)
        moments.add_classes(self.classes)
        features, rows = self.every.features.rows, self.every.rows.rows
        for start in range(0, len(rows), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            moments.add(embed(features[part]), rows[part])
        return moments

    def exemptions(self) -> dict[str, str]:
        """Checks of `prol.check_learner` that cannot hold with samples kept."""
        if isinstance(self.memory, int):
            return {"nothing_outlives_its_step": f"memory={self.memory} keeps features of so many samples a class"}
        if self.memory == "all":
            reason = "memory=all keeps the feature of every sample"
            return {"nothing_outlives_its_step": reason, "memory_is_bounded": reason}
        return {}

    def statistics_stored(self) -> Amount:
        return Amount(0, 0) if self.moments is None else Amount.of(*self.moments.tensors().values())

    def samples_stored(self) -> Amount:
        if self.every is not None:
            return Amount(self.every.rows.count, Amount.of(self.every.features.rows).bytes)
        if self.reservoir is not None:
            kept = int((self.reservoir.task.rows >= 0).sum())
            return Amount(kept, Amount.of(self.reservoir.features.rows).bytes)
        return Amount(0, 0)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tables = {name: table.rows for name, table in self._tables().items()}
        moments = {} if self.moments is None else self.moments.tensors()
        seen = 0 if self.moments is None else self.moments.seen
        return packed(moments=moments, kept=tables), {"seen": seen, "classes": self.classes, "twin": self.twin}

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> None:
        self.twin = bool(meta["twin"])
        if self.moments is not None:
            self.moments = self._moments_with(self.twin)
            self.moments.load(unpacked("moments", tensors), int(meta["seen"]))
        for name, table in self._tables().items():
            table.replace(unpacked("kept", tensors)[name])
        self.classes = int(meta["classes"])

    def _tables(self) -> dict[str, RowTable]:
        kept = self.every or self.reservoir
        return {} if kept is None else kept.tables()


def merged_meta(sums: Sums, classes: int) -> dict[str, Any]:
    """The JSON of a learner in tasks that remembers statistics, put together: one's own, with what all have counted."""
    meta = dict(sums.rest[1])
    counted = {"seen": sums.numbers["seen"], "classes": classes}
    return meta | {
        "clock": {**meta["clock"], "steps": sums.numbers["steps"]},
        "recollection": {**meta["recollection"], **counted},
    }
