"""Scores and familiarity of any number of images, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from prol.backbones.images import Pixels
    from prol.learner import Learner

SMALL_BATCH = 16
"""Images up to which a batch is never filled up."""


def whole_batch(count: int, most: int) -> int:
    """The batch size at which `count` images, at most `most`, pass through a GPU: few sizes, each compiled once.

    Small batches, which may be latency-critical, pass as they are.

    >>> [whole_batch(count, most=256) for count in (1, 10, 16, 17, 50, 200)]
    [1, 10, 16, 32, 64, 256]
    """
    return count if count <= SMALL_BATCH else min(most, 1 << (count - 1).bit_length())


def batches(pixels: Pixels, encoded: Tensor | None, size: int, filled: bool) -> Iterator[tuple[Pixels, Tensor | None]]:
    """Images and their encodings, if known, `size` at a time; `filled` repeats the last one up to a usual batch size.

    `pixels` may be empty where encodings are given.
    """
    count = len(pixels) if encoded is None else len(encoded)
    for start in range(0, count, size):
        left = count - start
        missing = max(0, (size if count > size else whole_batch(left, size)) - left) if filled else 0
        part = pixels[start : start + size]
        images = _filled(part, missing) if isinstance(part, Tensor) else part + part[-1:] * missing
        yield images, None if encoded is None else _filled(encoded[start : start + size], missing)


def _filled(rows: Tensor, missing: int) -> Tensor:
    return torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) if missing and len(rows) else rows


def predict(learner: Learner, pixels: Pixels, encoded: Tensor | None = None) -> Tensor:
    """Scores, float32 `[N, C]`, of images or of their encodings."""
    learner.flush()
    count = len(pixels) if encoded is None else len(encoded)
    if not learner.classes or not count:
        return torch.zeros(count, len(learner.classes))
    scores = [learner.scores(*batch).float().cpu() for batch in _batches(learner, pixels, encoded)]
    return torch.cat(scores)[:count]


def familiarity(learner: Learner, pixels: Pixels) -> Tensor | None:
    """Familiarity, float32 `[N]`; None where the method cannot say."""
    learner.flush()
    if not learner.classes:
        return None
    found = [learner.familiarity_of(batch, None) for batch, _ in _batches(learner, pixels)]
    return _joined(found, len(pixels))


def predict_with_familiarity(learner: Learner, pixels: Pixels) -> tuple[Tensor, Tensor | None]:
    """Both, from one encoding."""
    if not learner.classes or not len(pixels):
        return predict(learner, pixels), familiarity(learner, pixels)
    learner.flush()
    scores, found = [], []
    for batch, _ in _batches(learner, pixels):
        encoded = None if learner.encoding == "none" else learner.encoded(batch)
        scores.append(learner.scores(batch, encoded).float().cpu())
        found.append(learner.familiarity_of(batch, encoded))
    return torch.cat(scores)[: len(pixels)], _joined(found, len(pixels))


def encode(learner: Learner, pixels: Pixels) -> Tensor:
    """Encodings `[N, ...]` of images."""
    if learner.encoding == "none":
        raise ValueError(f"everything {learner.name} computes from an image changes with learning")
    return torch.cat([learner.encoded(batch) for batch, _ in _batches(learner, pixels)])[: len(pixels)]


def _batches(learner: Learner, pixels: Pixels, encoded: Tensor | None = None) -> Iterator[tuple[Pixels, Tensor | None]]:
    filled = learner.backbone.device.type == "cuda" and "batch_independence" not in learner.exemptions()
    return batches(pixels, encoded, learner.predict_batch, filled)


def _joined(parts: list[Tensor | None], count: int) -> Tensor | None:
    """Familiarity of the first `count` images of all batches; None where one batch has none."""
    known = [part.float().cpu() for part in parts if part is not None]
    return None if len(known) < len(parts) else torch.cat([torch.zeros(0), *known])[:count]
