"""Labels are text or whole numbers; 1 and "1" are two different classes."""

from __future__ import annotations

from collections.abc import Sequence
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
    if isinstance(labels, torch.Tensor):
        labels = labels.detach().cpu()
    if hasattr(labels, "tolist"):  # arrays, tensors, and the columns of data frames
        if np.ndim(labels) != 1:
            raise ValueError(f"labels must have one dimension, got shape {tuple(np.shape(labels))}")
        labels = labels.tolist()
    if isinstance(labels, str | bytes):
        raise ValueError(f"labels must be a sequence with one label per image, got {labels!r}; pass [{labels!r}]")
    if not isinstance(labels, Sequence):
        raise ValueError(f"labels must be a list or an array with one label per image, got a {type(labels).__name__}")
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
