"""Experience replay: the chunk and a draw from the memory, as one batch or with separate losses."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.replay.learner import Drawn, Losses, Payload, ReplayLearner, summed
from prol.methods.replay.views import FULL, PARTIAL, apply_views, draw_views


class ER(ReplayLearner):
    """Cross entropy over chunk and memory in one pass, so that batch norm sees old and new together."""

    name: ClassVar[str] = "er"
    citation: ClassVar[str] = "Chaudhry et al., On Tiny Episodic Memories in Continual Learning, 2019"

    def draw(self, rows: Tensor) -> Drawn:
        drawn = self.draw_memory()
        count = len(rows) + len(drawn["slots"])
        return drawn | {"views": draw_views(FULL, count, self.size, self.random)}

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        together = torch.cat([images, self.recalled(drawn["slots"])])
        logits = self.logits(self.features(apply_views(FULL, together, drawn["views"])))
        return {"total": F.cross_entropy(logits, torch.cat([rows, drawn["memory_rows"]]))}, {}


class ERACE(ReplayLearner):
    """Asymmetric cross entropy: new data do not push old classes down.

    The chunk competes with its own classes and those never seen, the memory with all; two passes.
    """

    name: ClassVar[str] = "er_ace"
    citation: ClassVar[str] = "Caccia et al., New Insights on Reducing Abrupt Representation Change, ICLR 2022"

    def draw(self, rows: Tensor) -> Drawn:
        drawn = self.draw_memory()
        count = len(rows) + len(drawn["slots"])
        seen = self.learnt.rows > 0
        return drawn | {"seen": seen, "views": draw_views(PARTIAL, count, self.size, self.random)}

    def losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[Losses, Payload]:
        views = apply_views(PARTIAL, torch.cat([images, self.recalled(drawn["slots"])]), drawn["views"])
        logits = self.logits(self.features(views[: len(rows)]))
        values = {"chunk": asymmetric_cross_entropy(logits, rows, drawn["seen"])}
        if len(views) > len(rows):
            recalled = self.logits(self.features(views[len(rows) :]))
            values["memory"] = F.cross_entropy(recalled, drawn["memory_rows"])
        return summed(values), {}


def asymmetric_cross_entropy(logits: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
    """Cross entropy of `[B, C]` without the classes that were `seen` before, bool `[C]`, and are not in the chunk."""
    present = torch.zeros_like(seen).index_fill(0, rows, True)
    return F.cross_entropy(logits.masked_fill(seen & ~present, -torch.inf), rows)
