"""Experience replay: the chunk and a draw from the memory as one batch."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from prol.methods.replay.learner import Drawn, ReplayLearner
from prol.methods.replay.views import FULL, apply_views, draw_views


class ER(ReplayLearner):
    """Cross entropy over chunk and memory in one pass, so that batch norm sees old and new together."""

    name: ClassVar[str] = "er"
    citation: ClassVar[str] = "Chaudhry et al., On Tiny Episodic Memories in Continual Learning, 2019"

    def _draw(self, rows: Tensor) -> Drawn:
        drawn = self._draw_memory()
        count = len(rows) + len(drawn["slots"])
        return drawn | {"views": draw_views(FULL, count, self.size, self.random)}

    def _losses(self, images: Tensor, rows: Tensor, drawn: Drawn) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        together = torch.cat([images, self._recalled(drawn["slots"])])
        logits = self._logits(self._features(apply_views(FULL, together, drawn["views"])))
        return {"total": F.cross_entropy(logits, torch.cat([rows, drawn["memory_rows"]]))}, {}
