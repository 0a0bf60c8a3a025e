"""PROL's source of prefixes: the generator, and a key, scalers and shifters for each class."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from prol.backbones import Prefix
from prol.engine.similarity import cosine_pairs, cosine_to_all, inverse_length, shared_first_hit_factor
from prol.methods.prol.learner import prompts
from prol.parts.rows import RowTable

ROOM = 256
"""Of classes, before buffers double: on a GPU that stops a stream for seconds."""

Factor = Literal["per_sample", "released", "one", "zero"]


@dataclass(frozen=True)
class PromptShape:
    """Sizes and switches of the prompts, as in the method's options; what is switched off takes no room."""

    width: int
    heads: int
    blocks: int
    length: int
    generator: bool
    keys: bool
    scalers: bool
    bias: bool
    layer_sum: bool
    factor: Factor
    detach_factor: bool


class Generator(NamedTuple):
    """Kernels `[L, 2, H, 3]` and biases `[L, 2, H]`, or `[0, 2, H]`, of the convolution that makes every prefix."""

    weight: Tensor
    bias: Tensor


class Chosen(NamedTuple):
    """What each sample's prompt is made from: a class row `[B]`, its key `[B, D]`, scalers and shifters `[B, 2, l]`."""

    rows: Tensor
    keys: Tensor
    scaler: Tensor | None = None
    shifter: Tensor | None = None


class KeyTable(NamedTuple):
    """All keys `[room, D]`, what brings them to length one `[room, 1]`, and how many there are."""

    keys: Tensor
    inverse_lengths: Tensor
    taken: Tensor


def nearest_key(query: Tensor, table: KeyTable) -> Tensor:
    """The row of the key with the highest cosine, `[B]`."""
    return _cosines(query, table).argmax(1)


def nearest_keys_by_task(query: Tensor, table: KeyTable, first: Tensor, current: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest keys of the current task and of older ones, rows `[B]` each; the task's rows begin at `first`.

    Samples that are not `current` `[B]`, but of an older class, may take any key as that of their task.
    """
    cosines = _cosines(query, table)
    older = torch.arange(cosines.shape[1], device=query.device) < first
    own = cosines.masked_fill(older & current.unsqueeze(1), -torch.inf)
    return own.argmax(1), cosines.masked_fill(~older, -torch.inf).argmax(1)


def _cosines(query: Tensor, table: KeyTable) -> Tensor:
    """Cosine of every query to every key, `[B, room]`, -inf where there is no class."""
    rows = torch.arange(len(table.keys), device=query.device)
    return cosine_to_all(query, table.keys, table.inverse_lengths).masked_fill(rows >= table.taken, -torch.inf)


def make_prefixes(
    shape: PromptShape, query: Tensor, chosen: Chosen | None, generator: Generator, first_candidate: int | Tensor = 0
) -> list[Prefix]:
    """Keys and values to put before those of each prompted block."""
    weight, bias = generator.weight, generator.bias if shape.bias else None
    if shape.layer_sum:
        weight, bias = prompts.sum_with_previous_block(weight, bias)
    generated = prompts.generate(prompts.generator_input(query, shape.heads), weight, bias)
    factor = _factor(shape, query, chosen, first_candidate)
    scaler, shifter = (None, None) if chosen is None else (chosen.scaler, chosen.shifter)
    prefix = prompts.assemble(generated, factor, scaler, shifter, shape.length, shape.layer_sum)
    return [(block[:, 0], block[:, 1]) for block in prefix.unbind(1)]


def _factor(shape: PromptShape, query: Tensor, chosen: Chosen | None, first_candidate: int | Tensor) -> Tensor:
    """How strongly each sample's prompt acts, `[B]`."""
    if shape.factor == "zero":
        return query.new_zeros(query.shape[0])
    if shape.factor == "one" or chosen is None:
        return query.new_ones(query.shape[0])
    cosine = cosine_pairs(query, chosen.keys)
    if shape.factor == "released":
        cosine = shared_first_hit_factor(cosine, chosen.rows == first_candidate)
    return cosine.detach() if shape.detach_factor else cosine


class PromptSource:
    """Holds the tables that prefixes are made from."""

    def __init__(self, shape: PromptShape, random: torch.Generator, device: torch.device, dtype: torch.dtype) -> None:
        self.shape = shape
        bound = 1 / math.sqrt(3)
        kernels = (shape.blocks * shape.generator, 2, shape.heads)
        weight, bias = _uniform((*kernels, 3), bound, random), _uniform(kernels, bound, random)
        self.generator = Generator(weight.to(device, dtype), bias[: len(bias) * shape.bias].to(device, dtype))
        self.keys = RowTable((shape.width * shape.keys,), device, dtype, ROOM)
        self.scaler = RowTable((2, shape.length * shape.scalers), device, dtype, ROOM)
        self.shifter = RowTable((2, shape.length * shape.scalers), device, dtype, ROOM)
        self._lengths = RowTable((1,), device, dtype, ROOM)  # inverse ones, of keys that are rarely moved
        self._count = torch.zeros((), dtype=torch.long, device=device)
        self._loads = 0

    def add_classes(self, count: int, random: torch.Generator) -> None:
        """New rows: keys uniform in (-1, 1), scalers 1, shifters 0."""
        shape = self.shape
        self.keys.append(_uniform((count, shape.width * shape.keys), 1.0, random))
        self.scaler.append(torch.ones(count, 2, shape.length * shape.scalers))
        self.shifter.append(torch.zeros(count, 2, shape.length * shape.scalers))
        self._lengths.append(inverse_length(self.keys.rows[-count:]))
        self._count.fill_(self.keys.count)

    def renew_lengths(self, rows: Tensor | None = None) -> None:
        """To be called when keys were moved, all or those of some rows `[R]`."""
        if rows is None:
            self._lengths.replace(inverse_length(self.keys.rows))
        else:
            self._lengths.buffer[rows] = inverse_length(self.keys.buffer[rows])

    def layout(self) -> tuple[int, ...]:
        """Changes whenever a buffer moves: what was captured before is of no use then."""
        return (self.keys.moves, self.scaler.moves, self.shifter.moves, self._lengths.moves, self._loads)

    def key_table(self) -> KeyTable:
        return KeyTable(self.keys.buffer, self._lengths.buffer, self._count)

    def tensors(self) -> dict[str, Tensor]:
        """Everything learnt, by name, as views."""
        return {
            "generator.weight": self.generator.weight,
            "generator.bias": self.generator.bias,
            "keys": self.keys.rows,
            "scaler": self.scaler.rows,
            "shifter": self.shifter.rows,
        }

    def load(self, tensors: dict[str, Tensor]) -> None:
        weight, bias = (tensors[f"generator.{name}"].to(self.keys.buffer) for name in ("weight", "bias"))
        self.generator = Generator(weight, bias)
        self._loads += 1
        for name, table in (("keys", self.keys), ("scaler", self.scaler), ("shifter", self.shifter)):
            table.replace(tensors[name])
        self.renew_lengths()
        self._count.fill_(self.keys.count)


def _uniform(shape: tuple[int, ...], bound: float, random: torch.Generator) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound, generator=random)
