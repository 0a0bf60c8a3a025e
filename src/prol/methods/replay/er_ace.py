"""ER with asymmetric cross entropy: new data do not push old classes down."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.replay.learner import Drawn, ReplayLearner
from prol.methods.replay.views import PARTIAL, apply_views, draw_views


class ERACE(ReplayLearner):
    """The chunk competes with its own classes and those never met, the memory with all; two passes."""

    name: ClassVar[str] = "er_ace"
    citation: ClassVar[str] = "Caccia et al., New Insights on Reducing Abrupt Representation Change, ICLR 2022"

    def _draw(self, rows: Tensor) -> Drawn:
        drawn = self._draw_memory()
        count = len(rows) + len(drawn["slots"])
        met = self.learnt.rows > 0
        return drawn | {"met": met, "views": draw_views(PARTIAL, count, self.size, self.random)}

    def _losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        views = apply_views(PARTIAL, torch.cat([images, self._recalled(drawn["slots"])]), drawn["views"])
        logits = self._logits(self._features(views[: len(rows)]))
        values = {"chunk": asymmetric_cross_entropy(logits, rows, drawn["met"])}
        if len(views) > len(rows):
            recalled = self._logits(self._features(views[len(rows) :]))
            values["memory"] = F.cross_entropy(recalled, drawn["memory_rows"])
        return values | {"total": torch.stack(list(values.values())).sum()}, {}


def asymmetric_cross_entropy(logits: Tensor, rows: Tensor, met: Tensor) -> Tensor:
    """Cross entropy of `[B, C]` without the classes that were `met` before, bool `[C]`, and are not in the chunk."""
    present = torch.zeros_like(met).index_fill(0, rows, True)
    return F.cross_entropy(logits.masked_fill(met & ~present, -torch.inf), rows)
