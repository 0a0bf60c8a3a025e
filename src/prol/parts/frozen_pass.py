"""A pass through a network that learning leaves alone: on a GPU, one graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from prol.parts.captured import Captured

MOST_SIZES = 8
"""Of batches that have a graph: chunks that are learnt, and answers in a few sizes."""


class FrozenPass:
    """What a network makes of its inputs, `[B, 3, size, size]` to `[B, ...]`, without gradients.

    Args:
        look: the pass. The network's tensors may change in place, but must stay where they are: a graph reads them
            there. It should not know the learner it belongs to, which would then outlive its last use.
    """

    def __init__(self, look: Callable[[Tensor], Tensor], captured: bool) -> None:
        self._pass = Captured(partial(_seen, look), captured, MOST_SIZES)

    @torch.no_grad()
    def __call__(self, inputs: Tensor) -> Tensor:
        return self._pass(None, inputs)["seen"].clone()  # the next replay writes to the same place


def _seen(look: Callable[[Tensor], Tensor], inputs: Tensor) -> dict[str, Tensor]:
    return {"seen": look(inputs)}
