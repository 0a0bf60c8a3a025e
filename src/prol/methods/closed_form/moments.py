"""Second moments of a stream of features: all that closed-form classifiers need, for any number of samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from prol.engine.similarity import classmates
from prol.state import State
from prol.tables import Product

BLOCK = 1024
COMPARED = 128
"""Samples of which each is compared with all others."""
HELD_OUT_EVERY = 5
LARGEST = 1e12
"""Features beyond this are faulty, and their squares would soon overflow."""
NOT_LEARNT = "these images were not learnt: what would be left of the sums is not that of any images"
SPREAD = "the matrix that all classes share still holds how its images spread about their mean, mixed with all others"
TAKEN = "its mean, and the expected share of its spread, in the matrix that all classes share"


class ClassTotals(NamedTuple):
    """Class `sums` `[C, M]` and `counts` `[C]` in float64."""

    sums: Tensor
    counts: Tensor


@dataclass(frozen=True)
class Totals:
    """Moments in float64 as solvers take them: `gram` XᵀX `[M, M]`, class `sums` `[C, M]` and `counts` `[C]`."""

    gram: Tensor
    sums: Tensor
    counts: Tensor

    @classmethod
    def of(cls, features: Tensor, rows: Tensor, classes: int) -> Totals:
        """The moments of features `[B, M]` that belong to the class rows `[B]`."""
        x = features.double()
        member = (rows == torch.arange(classes, device=rows.device).unsqueeze(1)).to(x)
        return cls(x.T @ x, member @ x, member.sum(1))

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.gram + other.gram, self.sums + other.sums, self.counts + other.counts)


class Moments:
    """Adds up XᵀX, class sums and counts, chunk by chunk: the same in any order, up to rounding.

    Of the symmetric XᵀX only block rows of some `height` that reach from the first column to the diagonal are stored,
    about half of it, and each is updated in place: nothing as large as XᵀX is made for an update.

    With `by_class` false, the rows of sums and counts are not classes: the owner appends them, and they are saved under
    other names.
    """

    def __init__(
        self, state: State, width: int, dtype: torch.dtype, height: int = BLOCK, by_class: bool = True
    ) -> None:
        self.width, self._state = width, state
        edges = [*range(0, width, height), width]
        zeros = [torch.zeros(end - start, end, device=state.device, dtype=dtype) for start, end in pairwise(edges)]
        self.blocks = state.matrix("gram", zeros, kind="statistic", merge="sum")
        of = "" if by_class else "_of_rows"
        declare = partial(state.table, kind="statistic", combine="sum" if by_class else None, grows=by_class)
        self.sums, self.counts = declare(f"sums{of}", width, dtype=dtype), declare(f"counts{of}", dtype=torch.float64)

    def append(self) -> None:
        """One more row, of which nothing was added yet."""
        self.sums.grow(1)
        self.counts.grow(1)

    def add(self, features: Tensor, rows: Tensor, times: int = 1) -> None:
        """Adds features `[B, M]` of the class rows `[B]`; with `times` -1 it subtracts them again."""
        x = features.to(self.blocks[0].dtype)
        if times == 1:
            # A log must not hold the features themselves, and what is added must be what is logged.
            added = mixed(x) if self._state.logs_products else x
            self._state.add_product("gram", Product(added, added), self.blocks)
        else:
            Product(x, x).add_to(self.blocks, times)
        for some, of in zip(torch.split(x, COMPARED), torch.split(rows, COMPARED), strict=True):
            mates, first = classmates(of)
            self.sums.add_where(of, times * (mates.to(x) @ some), first)
            self.counts.add_where(of, times * mates.sum(1), first)

    def subtract(self, features: Tensor, rows: Tensor) -> None:
        """Subtracts features `[B, M]` of the class rows `[B]`, which must have been added."""
        self.require_added(features)
        self.add(features, rows, times=-1)

    def require_added(self, features: Tensor) -> None:
        """Refuses features `[B, M]` whose squares exceed those summed up so far by more than rounding."""
        before, squares = self.squares().double(), features.double().square().sum(0)
        if bool((squares > before * (1 + 1e-4) + 1e-6 * before.mean()).any()):
            raise ValueError(NOT_LEARNT)

    def shift(self, step: Tensor) -> None:
        """As if d = `step` `[M]` had been added to each sample's features: s dᵀ + d sᵀ + N d dᵀ more in XᵀX."""
        d, counts = step.to(self.blocks[0].dtype), self.counts.rows.to(self.blocks[0].dtype)
        half = self.sums.rows.sum(0) + counts.sum() / 2 * d
        product = Product(torch.stack([half, d]), torch.stack([d, half]))
        self._state.add_product("gram", product, self.blocks)
        self.sums.rows.addr_(counts, d)

    def absorb(self, other: Moments) -> None:
        """Adds the moments of another one of the same shape."""
        for mine, theirs in zip(self.tensors().values(), other.tensors().values(), strict=True):
            mine += theirs

    def squares(self) -> Tensor:
        """The summed squares of each feature `[M]`, the diagonal of XᵀX."""
        return torch.cat([block[:, block.shape[1] - len(block) :].diagonal() for block in self.blocks])

    def totals(self, dtype: torch.dtype = torch.float64) -> Totals:
        return self.part(0, self.width, dtype)

    def class_totals(self) -> ClassTotals:
        """Copies, which later updates do not change."""
        return ClassTotals(self.sums.rows.to(torch.float64, copy=True), self.counts.rows.clone())

    def part(self, first: int, last: int, dtype: torch.dtype = torch.float64) -> Totals:
        """Moments of the features from `first` up to but not including `last`, as if there were no others.

        XᵀX is of the `dtype`: float32 is enough where no more is stored, and solving takes half of the time.
        """
        gram = torch.empty(last - first, last - first, device=self.blocks[0].device, dtype=dtype)
        for block in self.blocks:
            height, end = block.shape
            low, high = max(first, end - height), min(last, end)
            if low < high:
                rows = block[low - end + height : high - end + height, first:high]
                gram[low - first : high - first, : high - first] = rows
                gram[: low - first, low - first : high - first] = rows[:, : low - first].T
        return Totals(gram, self.sums.rows[:, first:last].double(), self.counts.rows.clone())

    def clear(self) -> None:
        """Forgets all features, but not how many classes there are."""
        for tensor in self.tensors().values():
            tensor.zero_()

    def tensors(self) -> dict[str, Tensor]:
        gram = {f"gram.{number}": block for number, block in enumerate(self.blocks)}
        return gram | {"sums": self.sums.rows, "counts": self.counts.rows}

    def describe_classes(self) -> None:
        """Says that these count a learner's images, and that a class is removed from them alone."""
        self._state.count_by(self.class_counts)
        self._state.on_remove(self._take_out)
        self._state.trace(removed=self.spread_trace)

    def _take_out(self, tensors: dict[str, Tensor], values: dict[str, Any], row: int) -> str:  # noqa: ARG002
        self.remove_class(tensors, row)
        return TAKEN

    def remove_class(self, tensors: dict[str, Tensor], row: int) -> int:
        """Removes a class from these moments in a saved state, but for its row; returns how many samples it had."""
        return take_out_of_moments(tensors, self._state.prefix, row)

    def class_counts(self) -> Tensor:
        return self.counts.rows

    def spread_trace(self, row: int | None) -> str:
        """Says that removing a class of more than one image leaves how these spread in XᵀX."""
        return "" if row is not None and int(self.counts.rows[row]) <= 1 else SPREAD


class TwinMoments:
    """Moments in two parts, so that a choice made on the first is validated on the second: no sample is needed again.

    With `twin`, every fifth sample goes to `held`, the others to `fit`; what is finally solved is their sum. Counting
    samples and not chunks makes the parts the same for any chunk size.
    """

    def __init__(self, state: State, width: int, dtype: torch.dtype, twin: bool) -> None:
        self._state, self._width, self._dtype = state, width, dtype
        self.fit = Moments(state.scope("fit"), width, dtype)
        self.held: Moments | None = None
        self.seen = 0
        self.separate(twin)

    def separate(self, twin: bool) -> None:
        """Begins or ends the separation without moving anything."""
        if twin and self.held is None:
            self.held = Moments(self._state.scope("held"), self._width, self._dtype)
        elif not twin and self.held is not None:
            self._state.scope("held").drop()
            self.held = None

    def parts(self) -> dict[str, Moments]:
        return {"fit": self.fit} if self.held is None else {"fit": self.fit, "held": self.held}

    def add(self, features: Tensor, rows: Tensor) -> None:
        """Adds features `[B, M]` of the class rows `[B]`."""
        if self.held is None:
            self.fit.add(features, rows)
        else:
            number = torch.arange(self.seen, self.seen + len(rows))
            held = number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1
            for part, chosen in ((self.fit, ~held), (self.held, held)):
                if bool(chosen.any()):
                    places = chosen.nonzero().flatten().to(rows.device)
                    part.add(features[places], rows[places])
        self.seen += len(rows)

    def merge(self) -> None:
        """Ends the separation: nothing is held out any more."""
        if self.held is not None:
            self.fit.absorb(self.held)
            self.separate(False)

    def counts(self) -> Tensor:
        """Samples of each class in both parts, `[C]`."""
        return torch.stack([part.counts.rows for part in self.parts().values()]).sum(0)

    def clear(self) -> None:
        for part in self.parts().values():
            part.clear()
        self.seen = 0


def mixed(x: Tensor) -> Tensor:
    """R `[min(B, M), M]` of the QR decomposition of features `[B, M]`: RᵀR = XᵀX up to rounding.

    R follows from XᵀX alone but for signs, so it shows no more of single samples than XᵀX itself does.
    """
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    r: Tensor = torch.linalg.qr(wide, mode="r").R
    return r.to(x.dtype).contiguous()


def usable(features: Tensor) -> bool:
    """Whether sums of squares of features can be added up: a NaN or infinity would stay in them."""
    return bool((features.abs() < LARGEST).all())


def require_usable(features: Tensor) -> None:
    if not usable(features):
        raise ValueError(
            "the backbone returns values that are not finite for an image of this chunk, which is not learnt: "
            "look at its weights and precision"
        )


def spread_share(counts: Tensor, row: int) -> float:
    """The share of the spread within classes that is expected to be that of one of them, from counts `[C]` alone.

    n samples have n - 1 degrees of freedom about their own mean: none where a class has one sample, all where it is
    the only one with more.
    """
    free = (counts.double() - 1).clamp(min=0)
    return float(free[row] / free.sum()) if float(free.sum()) > 0 else 0.0


def weights_without(counts: Tensor, row: int) -> tuple[float, Tensor]:
    """The change of XᵀX to (1 - f) XᵀX + Sᵀ diag(w) S: the first factor, and w `[C]`.

    With M = Σ s sᵀ / n over all classes, XᵀX - M is the spread within classes, of which the share f goes; of M the
    part of the class in `row` goes. What is left is positive semidefinite, and nothing where no other class has images.
    """
    share = spread_share(counts, row)
    weights = share / counts.double().clamp(min=1)
    weights[row] = -(1 - share) / counts[row].double().clamp(min=1)
    return 1 - share, weights


def take_out_of_moments(tensors: dict[str, Tensor], prefix: str, row: int) -> int:
    """Removes a class from the state of `Moments` under a prefix, but for its row; returns how many samples it had."""
    sums, counts = tensors[f"{prefix}sums"].double(), tensors[f"{prefix}counts"]
    factor, weights = weights_without(counts, row)
    weighted = weights.unsqueeze(1) * sums
    for name in [name for name in tensors if name.startswith(f"{prefix}gram.")]:
        height, end = tensors[name].shape
        block = factor * tensors[name].double() + weighted[:, end - height : end].T @ sums[:, :end]
        tensors[name] = block.to(tensors[name].dtype)
    return round(float(counts[row]))
