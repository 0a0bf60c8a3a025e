"""Labels are text or whole numbers; 1 and "1" are two different classes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

Label = str | int


def read_labels(labels: Any) -> list[Label]:
    """Turns what a user may hand over (list, array, tensor) into plain labels, or says what is wrong.

    >>> read_labels(np.array([3, 1]))
    [3, 1]
    >>> read_labels(["cat", 7])
    ['cat', 7]
    """
    if isinstance(labels, str):
        raise ValueError(
            f"labels must be a sequence with one label per image, got the text {labels!r}; pass [{labels!r}]"
        )
    if isinstance(labels, torch.Tensor):
        labels = labels.detach().cpu().numpy()
    if isinstance(labels, np.ndarray):
        if labels.ndim != 1:
            raise ValueError(f"labels must have one dimension, got shape {labels.shape}")
        labels = labels.tolist()
    if not isinstance(labels, Iterable):
        raise ValueError(f"labels must be a sequence with one label per image, got {type(labels).__name__}")
    return [_read_label(label) for label in labels]


def _read_label(label: Any) -> Label:
    if isinstance(label, np.generic | torch.Tensor) and np.ndim(label) == 0:
        label = label.item()
    if isinstance(label, bool) or not isinstance(label, str | int):
        raise ValueError(f"a label must be text or a whole number, got {label!r} ({type(label).__name__})")
    return label


def require_distinct(labels: Sequence[Label]) -> None:
    """Announced classes must not repeat."""
    seen: set[Label] = set()
    for label in labels:
        if label in seen:
            raise ValueError(f"class {label!r} is announced twice")
        seen.add(label)
