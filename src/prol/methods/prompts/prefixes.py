"""What the prompt methods share: common options, fresh prompts, and prefixes in the form that blocks take.

Axes: L prompted blocks, 2 for key/value, H heads, l positions, d = D / H.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prol.backbones.blocks import Prefix
from prol.engine.similarity import cosine_to_all, unit
from prol.methods.gradient import TrainingOptions
from prol.options import Positive

Selection = Literal["per_sample", "batch_vote"]
Init = Literal["wide", "small"]


@dataclass(frozen=True)
class PromptOptions(TrainingOptions):
    """Options that L2P, DualPrompt, CODA-Prompt and ConvPrompt have in common."""

    clip: Positive | None = 1.0
    """Limit on the joint norm of all gradients; none for no limit."""


def initial(shape: tuple[int, ...], init: Init, random: torch.Generator) -> Tensor:
    """Fresh prompts or keys: uniform in (-1, 1), or in (0, 0.01) as the first publications drew them."""
    low, high = (-1.0, 1.0) if init == "wide" else (0.0, 0.01)
    return torch.empty(shape).uniform_(low, high, generator=random)


def by_block(prefixes: Tensor, first_block: int = 0) -> dict[int, Prefix]:
    """`[B, L, 2, H, l, d]` as the keys and values of the L blocks from `first_block` on."""
    return {first_block + i: (prefixes[:, i, 0], prefixes[:, i, 1]) for i in range(prefixes.shape[1])}


def component_weights(query: Tensor, attention: Tensor, keys: Tensor) -> Tensor:
    """Cosine of each query, seen through a component's attention vector, to that component's key: `[B, L, R]`.

    `query` `[B, D]`; `attention` and `keys` `[R, L, D]`. The cosine of q * A and K is the product of q with A * K,
    divided by the lengths of K and of q * A, whose square is the product of q² with A²: `[B, R, D]` is never formed.
    """
    batch, (components, blocks, width) = query.shape[0], attention.shape
    along = query @ (attention * unit(keys)).reshape(-1, width).T
    length = query.square() @ attention.square().reshape(-1, width).T
    cosines = along * length.clamp(min=1e-12).rsqrt()
    return cosines.view(batch, components, blocks).transpose(1, 2)


def mixed(weights: Tensor, components: Tensor) -> Tensor:
    """Sum of components `[R, L, 2, H, l, d]` by weights `[B, L, R]`: `[B, L, 2, H, l, d]`."""
    blocks, parts = components.shape[1], components.transpose(0, 1).flatten(2)
    return (weights.transpose(0, 1) @ parts).transpose(0, 1).view(weights.shape[0], blocks, *components.shape[2:])


def nearest_keys(query: Tensor, keys: Tensor, count: int = 1) -> Tensor:
    """Rows of the `count` keys `[K, D]` nearest to each query `[B, D]`, best first: `[B, count]`."""
    return cosine_to_all(query, keys).topk(count, dim=1).indices


def batch_vote(rows: Tensor, keys: int) -> Tensor:
    """The rows that most samples of the batch chose, for every sample alike; `[B, N]` to `[B, N]`.

    Of equal votes the lower row wins. A test batch with one task's images reveals that task.
    """
    # Not bincount: on a GPU that waits for the device.
    votes = (rows.flatten() == torch.arange(keys, device=rows.device).unsqueeze(1)).sum(1)
    return votes.sort(descending=True, stable=True).indices[: rows.shape[1]].expand_as(rows)


def pull(query: Tensor, chosen: Tensor) -> Tensor:
    """Mean over the batch of the summed cosines of queries `[B, D]` to their chosen keys `[B, N, D]`."""
    return (unit(query).unsqueeze(1) * unit(chosen)).sum((1, 2)).mean()


def orthonormal_rows(count: int, old: Tensor, random: torch.Generator) -> Tensor:
    """`count` rows `[count, N]` of length one, drawn at random, at right angles to each other and to `old` `[R, N]`.

    N directions are all there is: where they do not suffice, the newest old rows count first, and of more than N new
    rows each N are at right angles.
    """
    width = old.shape[1]
    drawn = torch.empty(count, width).normal_(generator=random).to(old)
    if not drawn.numel():
        return drawn
    made = []
    for start in range(0, count, width):
        new = drawn[start : start + width]
        fixed = old[len(old) - min(len(old), width - len(new)) :]
        # The last columns of Q are those of Gram-Schmidt, whether or not the old rows are at right angles themselves.
        basis = torch.linalg.qr(torch.cat([fixed, new]).T).Q
        made.append(basis.T[len(fixed) :])
    return torch.cat(made)


def orthogonality_gap(rows: Tensor) -> Tensor:
    """How far rows `[L, R, N]` are from orthonormal: mean squared entry of TTᵀ - I, summed over L."""
    products = rows @ rows.transpose(1, 2)
    return (products - torch.eye(rows.shape[1]).to(rows)).square().mean((1, 2)).sum()
