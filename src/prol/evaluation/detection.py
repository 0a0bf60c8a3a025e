"""How well a score separates images of unknown classes from those of known ones; higher scores mean unknown."""

from __future__ import annotations

import torch
from torch import Tensor


def auroc(scores: Tensor, unknown: Tensor) -> float:
    """Area under the ROC curve: the chance that an unknown image scores above a known one, half of it where equal.

    Scores are `[N]`, and `unknown` bool `[N]`.

    >>> auroc(torch.tensor([0.1, 0.6, 0.6, 0.9]), torch.tensor([False, False, True, True]))
    0.875
    """
    high, low = _counts(scores, unknown)
    return float((high * (low.cumsum(0) - low / 2)).sum() / (high.sum() * low.sum()))


def fpr_at_tpr(scores: Tensor, unknown: Tensor, tpr: float = 0.95) -> float:
    """Share of known images at or above the highest threshold that at least `tpr` of the unknown ones reach: FPR95.

    Scores are `[N]`, and `unknown` bool `[N]`.

    >>> fpr_at_tpr(torch.tensor([0.1, 0.6, 0.6, 0.9]), torch.tensor([False, False, True, True]))
    0.5
    """
    high, low = (counts.flip(0).cumsum(0) / counts.sum() for counts in _counts(scores, unknown))
    return float(low[int((high < tpr).sum())])


def _counts(scores: Tensor, unknown: Tensor) -> tuple[Tensor, Tensor]:
    """Unknown and known images at each different score, lowest first."""
    if not 0 < int(unknown.sum()) < len(unknown):
        raise ValueError("both images of known and of unknown classes are needed")
    values, ranks = torch.unique(scores.double(), return_inverse=True)
    high, low = (torch.bincount(ranks[kind], minlength=len(values)).double() for kind in (unknown, ~unknown))
    return high, low
