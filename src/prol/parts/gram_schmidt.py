"""New vectors at right angles to those already there."""

from __future__ import annotations

import torch
from torch import Tensor


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
        kept = old[len(old) - min(len(old), width - len(new)) :]
        # The last columns of Q are what Gram-Schmidt gives, whether or not the old rows are at right angles themselves.
        basis = torch.linalg.qr(torch.cat([kept, new]).T).Q
        made.append(basis.T[len(kept) :])
    return torch.cat(made)


def orthogonality_gap(rows: Tensor) -> Tensor:
    """How far rows `[L, R, N]` are from orthonormal: mean squared entry of TTᵀ - I, summed over L."""
    products = rows @ rows.transpose(1, 2)
    return (products - torch.eye(rows.shape[1]).to(rows)).square().mean((1, 2)).sum()
