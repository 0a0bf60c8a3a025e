"""What was learnt as sums: those of several learners together are those of one that learnt what all of them did."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sums:
    """The state of a learner, apart by how it is added to that of another.

    Tensors are the learner's own and for reading only.
    """

    tables: Mapping[str, Tensor]
    """Those with a row for each class, `[C, ...]`: rows of one class add up."""
    totals: Mapping[str, Tensor] = field(default_factory=dict)
    """Those that add up as they are."""
    numbers: Mapping[str, int] = field(default_factory=dict)
    """Counts that add up."""
    agreed: Mapping[str, Any] = field(default_factory=dict)
    """What must be equal, by words for it: sums under other values could not be added."""
    rest: tuple[Mapping[str, Tensor], Mapping[str, Any]] = field(default_factory=lambda: ({}, {}))
    """All else of the state, tensors and JSON, which is taken over from one of the learners."""
    narrowing: tuple[str, ...] = ()
    """Tables `[C, K]` that lose their last columns when classes become many: the narrowest of them decides."""

    @classmethod
    def of(
        cls,
        state: tuple[Mapping[str, Tensor], Mapping[str, Any]],
        tables: tuple[str, ...],
        totals: tuple[str, ...] = (),
        **others: Any,
    ) -> Sums:
        """Takes a method's state apart by patterns of names."""
        tensors, meta = state

        def chosen(patterns: tuple[str, ...]) -> dict[str, Tensor]:
            return {name: t for name, t in tensors.items() if any(fnmatchcase(name, one) for one in patterns)}

        rows, whole = chosen(tables), chosen(totals)
        rest = {name: tensor for name, tensor in tensors.items() if name not in rows and name not in whole}
        return cls(rows, whole, rest=(rest, meta), **others)

    def together(self) -> dict[str, Tensor]:
        """All tensors of the state under their names."""
        return {**self.tables, **self.totals, **self.rest[0]}


def placed(table: Tensor, rows: Tensor, classes: int) -> Tensor:
    """A table `[C, ...]` in float64 with each row where `rows` `[C]` says, zeros elsewhere: `[classes, ...]`."""
    wide = torch.zeros(classes, *table.shape[1:], device=table.device, dtype=torch.float64)
    wide[rows.to(table.device)] = table.double()
    return wide


def fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """A hash of tensors, to find out whether two learners have the same ones."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
