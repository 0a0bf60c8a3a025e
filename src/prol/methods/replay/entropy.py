"""How unsure a prediction is, and a memory that gives up the sample of a class it is surest of."""

from __future__ import annotations

import torch
from torch import Tensor

from prol.methods.replay.sample_memory import EMPTY


def prediction_entropy(logits: Tensor) -> Tensor:
    """`[B]`, of the softmax of `[B, C]`, in nats."""
    log_p = logits.log_softmax(1)
    return -(log_p.exp() * log_p).sum(1)


def above_median(values: Tensor) -> Tensor:
    """Which of `[B]` are above their median, bool; of an even number the lower middle one counts as the median."""
    return values > values.sort().values[(len(values) - 1) // 2]


def surest_replaced(
    entropy: Tensor, kept_rows: Tensor, slots: Tensor, rows: Tensor, new_entropy: Tensor
) -> tuple[Tensor, Tensor]:
    """Where samples go when each new one takes the place of the surest of a class.

    A new sample is given a slot, but what has to go is the sample of least entropy of the class that lies there: what
    lay in the slot moves to that one's place. So each slot holds the class that it would hold anyway. Samples come one
    after the other, each finding what the ones before have left.

    Args:
        entropy: of the samples in slots, `[capacity + 1]`; the last slot takes what is not kept.
        kept_rows: their class rows `[capacity]`, EMPTY where there is none.
        slots: given to new samples, `[B]`; `capacity` for those not kept.
        rows: class rows of new samples `[B]`.
        new_entropy: theirs, `[B]`.

    Returns:
        Slots `[2 B]` that are to be written, and what goes there `[2 B]`: a slot as it was before, or
        `capacity + 1 + i` for new sample i. A slot that comes twice gets the same both times.
    """
    capacity = len(kept_rows)
    there, unsure = torch.cat([kept_rows, rows.new_full((1,), EMPTY)]), entropy.clone()
    holds = torch.arange(capacity + 1, device=entropy.device)
    left: list[Tensor] = []
    for i in range(len(slots)):
        slot = slots[i : i + 1]
        row = there[slot]
        member = there[:capacity] == row
        surest = torch.where(member, unsure[:capacity], torch.inf).argmin(keepdim=True)
        left.append(torch.where((row == EMPTY) | (slot == capacity), slot, surest))
        for table in (holds, unsure):
            table.index_copy_(0, left[-1], table[slot])
        holds.index_copy_(0, slot, torch.full_like(slot, capacity + 1 + i))
        unsure.index_copy_(0, slot, new_entropy[i : i + 1].to(unsure))
        there.index_copy_(0, slot, rows[i : i + 1])
    written = torch.cat([*left, slots])
    return written, holds[written]
