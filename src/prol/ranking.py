"""Predictions from raw scores: the most probable classes, best first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prol.classes import Label

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RankedLabel:
    """A class, its raw score, and its probability among all classes."""

    label: Label
    probability: float
    score: float


def ranked(
    scores: Tensor, classes: Sequence[Label], top: int = 1, probabilities: Tensor | None = None
) -> list[list[RankedLabel]]:
    """The `top` predictions for each row of scores `[N, C]`, best first; of equal ones, the class seen earlier.

    `probabilities` `[N, C]` are calibrated ones; the softmax of scores without them.

    A class of which nothing was learnt yet (score minus infinity) is never predicted.

    >>> import torch
    >>> [best.label for best in ranked(torch.tensor([[0.5, 2.0, -torch.inf]]), ["cat", "dog", "eel"], top=3)[0]]
    ['dog', 'cat']
    """
    if top < 1:
        raise ValueError(f"top must be at least 1, got {top}")
    if scores.shape[1] != len(classes):
        raise ValueError(f"{scores.shape[1]} scores for {len(classes)} classes: what was saved is inconsistent")
    if bool(scores.isnan().any() | scores.isposinf().any()):
        raise ValueError("some scores are not finite numbers: what was learnt is damaged")
    probable = (scores.double().softmax(dim=1) if probabilities is None else probabilities).tolist()
    rows = scores.argsort(dim=1, descending=True, stable=True)[:, :top].tolist()
    values = scores.tolist()
    return [
        [RankedLabel(classes[row], likely[row], value[row]) for row in best if value[row] != float("-inf")]
        for best, likely, value in zip(rows, probable, values, strict=True)
    ]
