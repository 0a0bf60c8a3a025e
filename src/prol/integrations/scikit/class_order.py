"""scikit-learn's classes are sorted; what learns has them in the order in which they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Labels = NDArray[Any]


def with_newcomers(known: Labels | None, *more: Labels) -> Labels:
    """`known` labels in their order, then those of `more` that are not among them, sorted.

    >>> with_newcomers(np.array(["eel"]), np.array(["dog", "cat", "dog"])).tolist()
    ['eel', 'cat', 'dog']
    """
    groups = [group for group in (known, *more) if group is not None and len(group)]
    if len({_is_text(group) for group in groups}) > 1:
        raise ValueError("labels must be all text or all numbers: scikit-learn sorts its classes; turn them into text")
    met = groups[0][:0] if known is None else known
    for group in more:
        met = np.concatenate([met, np.setdiff1d(group, met)]) if len(group) else met
    return met


def label_array(labels: Sequence[Any] | Labels) -> Labels:
    """Labels as an array, in which numbers among texts would become texts: they are refused."""
    if len({isinstance(label, str) for label in labels}) > 1:
        raise ValueError("labels must be all text or all numbers, but these are some of each: turn them into text")
    return np.asarray(labels)


def _is_text(labels: Labels) -> bool:
    return bool(isinstance(label_array(labels).flat[0], str))


def margins(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scores `[N, C]` as scikit-learn wants them: of two classes, `[N]`, how much the second is ahead."""
    return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores


def probabilities(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The softmax of scores `[N, C]` over classes; one of minus infinity gives zero."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
