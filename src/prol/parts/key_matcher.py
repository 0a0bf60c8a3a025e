"""Which keys fit a query: the nearest by cosine, and the pull of chosen keys towards their queries."""

from __future__ import annotations

import torch
from torch import Tensor

from prol.parts.similarity import cosine_to_all, unit


def nearest_keys(query: Tensor, keys: Tensor, count: int = 1) -> Tensor:
    """Rows of the `count` keys `[K, D]` nearest to each query `[B, D]`, best first: `[B, count]`."""
    return cosine_to_all(query, keys).topk(count, dim=1).indices


def batch_vote(rows: Tensor, keys: int) -> Tensor:
    """The rows that most samples of the batch chose, for every sample alike; `[B, N]` to `[B, N]`.

    Of equal votes the lower row wins. A test batch with one task's images gives that task away.
    """
    # Not bincount: on a GPU that waits for the device.
    votes = (rows.flatten() == torch.arange(keys, device=rows.device).unsqueeze(1)).sum(1)
    return votes.sort(descending=True, stable=True).indices[: rows.shape[1]].expand_as(rows)


def pull(query: Tensor, chosen: Tensor) -> Tensor:
    """Mean over the batch of the summed cosines of queries `[B, D]` to their chosen keys `[B, N, D]`."""
    return (unit(query).unsqueeze(1) * unit(chosen)).sum((1, 2)).mean()
