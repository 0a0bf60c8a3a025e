"""The classifier that was solved last for calibration, which predicts later chunks before they are learnt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.closed_form.solvers import SolvedHead
from prol.state import State


class LastSolved:
    """A head of the classes seen by then: `weight` `[S, M]`, `bias` `[S]`, and the `rows` `[S]` of these classes.

    Where it is known, the `spread` `[1]` of scores that is usual, too.

    It is saved, so that a resumed learner observes the same. Whatever else changes the classes or sums than learning
    drops it, until the next one is solved.
    """

    def __init__(self, state: State, width: int) -> None:
        self._state, self._width = state, width
        self._tensors: dict[str, Tensor] = {}
        state.group("solved", self._read, self._load, kind="parameter", stored=False)
        state.on_remove(self._removed)
        state.on_combine(self._combined)
        state.on_merge(take=self._merged)

    @property
    def spread(self) -> float | None:
        return float(self._tensors["spread"]) if "spread" in self._tensors else None

    def replace(self, head: SolvedHead, spread: float | None) -> None:
        assert head.bias is not None
        self._state.overwrites("solved")
        rows = head.seen.nonzero().flatten()
        self._tensors = {"weight": head.weight[rows], "bias": head.bias[rows], "rows": rows}
        if spread is not None:
            self._tensors["spread"] = head.bias.new_tensor([spread], dtype=torch.float64)

    def clear(self) -> None:
        self._state.overwrites("solved")
        self._tensors = {}

    def scores(self, features: Tensor, classes: int) -> Tensor | None:
        """`[B, classes]` from features `[B, M]`, -inf for classes that came later; None where there is none."""
        if not self._tensors:
            return None
        scores = features.new_full((len(features), classes), -torch.inf)
        scores[:, self._tensors["rows"]] = F.linear(features, self._tensors["weight"], self._tensors["bias"])
        return scores

    def _read(self) -> Mapping[str, Tensor]:
        return self._tensors

    def _load(self, saved: Mapping[str, Tensor]) -> None:
        if saved:
            weight, bias, rows = (saved.get(name, torch.empty(0)) for name in ("weight", "bias", "rows"))
            fits = weight.shape == (len(rows), self._width) and bias.shape == rows.shape and rows.dtype == torch.int64
            if not fits or (len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self._state.classes):
                raise ValueError("solved/weight, solved/bias and solved/rows do not fit each other or the classes")
            if saved.get("spread", weight.new_ones(1)).shape != (1,):
                raise ValueError("solved/spread is not one number")
        self._tensors = dict(saved)

    def _removed(self, tensors: dict[str, Tensor], values: dict[str, Any], row: int) -> str:  # noqa: ARG002
        self._drop(tensors)
        return ""

    def _combined(self, tensors: dict[str, Tensor], values: dict[str, Any], source: int, into: int) -> None:  # noqa: ARG002
        self._drop(tensors)

    def _merged(self, tensors: dict[str, Tensor], values: dict[str, Any], classes: int) -> dict[str, Tensor]:  # noqa: ARG002
        self._drop(tensors)
        return tensors

    def _drop(self, tensors: dict[str, Tensor]) -> None:
        for name in ("weight", "bias", "rows", "spread"):
            tensors.pop(f"{self._state.prefix}solved/{name}", None)
