"""PROL's source of prefixes: a small convolution of the query, and a key, scalers and shifters for each class.

Axes: L prompted blocks, 2 for key/value, H heads, l positions, d = D / H.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.backbones.blocks import Prefix
from prol.engine.similarity import cosine_pairs, cosine_to_all, inverse_length
from prol.state import State
from prol.tables import Table

CAPACITY = 256
"""Rows of classes before buffers double, which stops a stream on a GPU for seconds."""

Factor = Literal["per_sample", "released", "one", "zero"]


@dataclass(frozen=True)
class PromptShape:
    """Sizes and switches of the prompts, as in the method's options; what is switched off takes no memory."""

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
    """All keys `[capacity, D]`, what brings them to length one `[capacity, 1]`, and how many there are."""

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
    """Cosine of every query to every key, `[B, capacity]`, -inf where there is no class."""
    rows = torch.arange(len(table.keys), device=query.device)
    return cosine_to_all(query, table.keys, table.inverse_lengths).masked_fill(rows >= table.taken, -torch.inf)


def generator_input(query: Tensor, heads: int) -> Tensor:
    """Every H-th coordinate of the query `[B, D]`, starting at 0: `[B, d]`."""
    return query[:, ::heads]


def sum_with_previous_block(weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Generator whose block i yields its own output plus that of block i - 1; `[L, 2, H, 3]` and `[L, 2, H]`."""
    weight = torch.cat([weight[:1], weight[1:] + weight[:-1]])
    return weight, None if bias is None else torch.cat([bias[:1], bias[1:] + bias[:-1]])


def generate(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """All 2·L·H kernels of width 3 in one convolution of `[B, d]`: `[B, L, 2, H, d]`."""
    kernels = weight.reshape(-1, 1, 3)
    out = F.conv1d(inputs.unsqueeze(1), kernels, None if bias is None else bias.reshape(-1), padding=1)
    return out.view(inputs.shape[0], *weight.shape[:3], -1)


def assemble(
    generated: Tensor, factor: Tensor, scaler: Tensor | None, shifter: Tensor | None, length: int, layer_sum: bool
) -> Tensor:
    """Prefixes `[B, L, 2, H, l, d]` from generated values `[B, L, 2, H, d]` and each sample's factor `[B]`.

    With u = factor · generated, position 1 is u and position i is scaler_i · u + shifter_i. `scaler` and `shifter` are
    `[B, 2, l]` (column 0 unused); without them every position is u. `layer_sum` says that `generated` already holds the
    sum with the block before, so that from the second block on shifters count twice.
    """
    u = (factor.view(-1, 1, 1, 1, 1) * generated).unsqueeze(4)
    if scaler is None or shifter is None:
        return u.expand(-1, -1, -1, -1, length, -1)
    times = torch.ones(generated.shape[1], dtype=u.dtype, device=u.device)
    if layer_sum:
        times[1:] = 2
    scale = scaler[:, None, :, None, 1:, None]
    shift = shifter[:, None, :, None, 1:, None] * times.view(1, -1, 1, 1, 1, 1)
    return torch.cat([u, scale * u + shift], dim=4)


def make_prefixes(
    shape: PromptShape, query: Tensor, chosen: Chosen | None, generator: Generator, first_candidate: int | Tensor = 0
) -> list[Prefix]:
    """Keys and values to put before those of each prompted block."""
    weight, bias = generator.weight, generator.bias if shape.bias else None
    if shape.layer_sum:
        weight, bias = sum_with_previous_block(weight, bias)
    generated = generate(generator_input(query, shape.heads), weight, bias)
    factor = _factor(shape, query, chosen, first_candidate)
    scaler, shifter = (None, None) if chosen is None else (chosen.scaler, chosen.shifter)
    prefix = assemble(generated, factor, scaler, shifter, shape.length, shape.layer_sum)
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


def shared_first_hit_factor(cosine: Tensor, hits: Tensor) -> Tensor:
    """One factor for a whole batch, as the released code computes it: `[B]`, all entries equal.

    Its value is the cosine of the last sample in `hits` (those whose nearest key is candidate number 0), or zero
    without any; its gradient reaches the cosine of every hit in full.
    """
    place = torch.arange(hits.shape[0], device=hits.device)
    last = place == torch.where(hits, place, -1).amax()
    total = (cosine * hits).sum()
    shared = total + ((cosine * last).sum() - total).detach()
    return shared.expand_as(cosine)


class PromptSource:
    """Declares the tables that prefixes are made from: fresh keys are uniform in (-1, 1), scalers 1, shifters 0."""

    def __init__(self, state: State, shape: PromptShape, random: torch.Generator, dtype: torch.dtype) -> None:
        self.shape = shape
        source, device = state.scope("source"), state.device
        bound, kernels = 1 / math.sqrt(3), (shape.blocks * shape.generator, 2, shape.heads)
        weight, bias = _uniform((*kernels, 3), bound, random), _uniform(kernels, bound, random)
        self.generator = Generator(
            source.tensor("generator.weight", weight.to(device, dtype), kind="parameter"),
            source.tensor("generator.bias", bias[: len(bias) * shape.bias].to(device, dtype), kind="parameter"),
        )
        by_class = partial(source.table, kind="parameter", dtype=dtype, combine="keep", capacity=CAPACITY)
        width, scaled = shape.width * shape.keys, (2, shape.length * shape.scalers)
        self.keys = by_class("keys", width, initial=lambda count: _uniform((count, width), 1.0, random))
        self.scaler = by_class("scaler", scaled, initial=lambda count: torch.ones(count, *scaled))
        self.shifter = by_class("shifter", scaled)
        self._lengths = Table((1,), device, dtype, CAPACITY)  # inverse ones, of keys that are rarely moved
        self._count = torch.zeros((), dtype=torch.long, device=device)
        state.on_growth(self._follow_growth)
        state.on_load(self.renew_lengths)

    def _follow_growth(self, count: int) -> None:
        self._lengths.append(inverse_length(self.keys.rows[self.keys.count - count :]))
        self._count.fill_(self.keys.count)

    def renew_lengths(self, rows: Tensor | None = None) -> None:
        """To be called when keys have changed, all or those of some rows `[R]`."""
        if rows is None:
            self._lengths.replace(inverse_length(self.keys.rows))
            self._count.fill_(self.keys.count)
        else:
            self._lengths.buffer[rows] = inverse_length(self.keys.buffer[rows])

    def layout(self) -> tuple[int, ...]:
        """Changes whenever a buffer moves, which invalidates captured steps."""
        return (self.keys.moves, self.scaler.moves, self.shifter.moves, self._lengths.moves)

    def key_table(self) -> KeyTable:
        return KeyTable(self.keys.buffer, self._lengths.buffer, self._count)


def _uniform(shape: tuple[int, ...], bound: float, random: torch.Generator) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound, generator=random)
