"""A state with one entry of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from prol.state import State


@dataclass
class Clock:
    number: int = 0
    first_row: int = 0
    given: bool = field(default=False, metadata={"key": "told"})


class Everything:
    """One entry of every kind, under two prefixes."""

    def __init__(self) -> None:
        self.state, self.grown, self.fresh = State(), list[tuple[str, int]](), 0
        self.sums = self.state.table("sums", 2, kind="statistic", dtype=torch.float64)
        self.ids = self.state.table("ids", kind="parameter", dtype=torch.int64, combine="keep", initial=self._numbered)
        inner = self.state.scope("part").scope("inner")
        self.flags = inner.table("flags", kind="statistic", dtype=torch.bool, combine="either", grows=lambda: self.on)
        self.log = inner.table("log", kind="sample", combine=None, grows=False)
        self.total = self.state.tensor("total", torch.zeros(3), kind="statistic", merge="sum")
        self.layer = torch.arange(3.0)
        self.state.group("layer", lambda: {"": self.layer}, lambda _: None, kind="parameter", saved=False)
        self.weights = {"a": torch.zeros(2), "b.c": torch.zeros(2, 2)}
        self.state.tensors("net", lambda: self.weights, kind="parameter", agree="weights")
        self.scale: Tensor | None = None
        self.state.optional("scale", self, "scale", kind="parameter", agree="scale")
        self.moments: dict[str, Tensor] = {}
        self.state.group(
            "adam",
            lambda: self.moments,
            self._load_moments,
            kind="moment",
            combine={"sums/*": "sum"},
            measure=self._measure,
        )
        self.on, self.seen, self.notes, self.clock = True, 0, {"list": [1, 2]}, Clock()
        inner.value("seen", self, merge="sum")
        self.state.value("part/notes", self, "notes", agree="notes")
        self.state.scope("clock").fields(self.clock, rows=("first_row",), sums=("number",))
        self.state.on_growth(lambda count: self.grown.append(("followed", count)))

    def _numbered(self, count: int) -> Tensor:
        self.grown.append(("ids", count))
        assert self.sums.count == self.state.classes  # what was declared earlier has grown already
        assert self.flags.count < self.state.classes
        self.fresh += count
        return torch.arange(self.fresh - count, self.fresh)

    def _load_moments(self, saved: Any) -> None:
        self.moments = dict(saved)

    def _measure(self) -> Callable[[], None]:
        lengths = {name: len(tensor) for name, tensor in self.moments.items()}

        def shorten() -> None:
            self.moments = {name: self.moments[name][:length] for name, length in lengths.items()}

        return shorten

    def fill(self, classes: int = 3) -> Everything:
        self.state.add_classes(classes)
        self.sums.rows.copy_(torch.arange(2.0 * classes).view(classes, 2) + 1)
        self.flags.rows[0] = True
        self.log.append(torch.tensor([4.0, 5.0]))
        self.total += 2
        self.weights["a"] += 1
        self.scale = torch.ones(4)
        self.moments = {"sums/mean": torch.ones(classes, 2), "sums/rows": torch.arange(classes)}
        self.seen, self.notes, self.clock.number, self.clock.first_row = 7, {"list": [3]}, 1, 2
        return self

    def saved(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        tensors = {name: tensor.clone() for name, tensor in self.state.saved_tensors().items()}
        return tensors, json.loads(json.dumps(self.state.saved_values()))


def same(one: Any, other: Any) -> bool:
    (tensors, values), (others, other_values) = one, other
    if tensors.keys() != others.keys() or values != other_values:
        return False
    return all(
        tensors[name].dtype == others[name].dtype and torch.equal(tensors[name], others[name]) for name in tensors
    )
