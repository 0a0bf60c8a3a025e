"""How strange an image is among those of known classes, calibrated on the stream itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from prol.learner import Learner
from prol.novelty import Novelty


class Unknowns:
    """Observes how familiar images look before they are learnt, and says what that means for others."""

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self._novelty = Novelty() if state is None else Novelty.from_state(state)

    def state(self) -> dict[str, Any]:
        return self._novelty.state()

    def observe(self, familiarity: Sequence[float], known: Sequence[bool]) -> None:
        self._novelty.observe(torch.tensor(familiarity), torch.tensor(known))

    def scores(self, familiarity: Sequence[float]) -> list[float] | None:
        """0 to 1 for each image; None while there is too little to calibrate on."""
        unknown = self._novelty.unknown(torch.tensor(familiarity))
        return None if unknown is None else unknown.tolist()

    @staticmethod
    def asked(learner: Learner, images: Any) -> tuple[Tensor, list[float] | None]:
        """Scores `[N, C]` and familiarity, from one look at the images."""
        scores, familiarity = learner.predict_with_familiarity(images)
        return scores, None if familiarity is None else familiarity.tolist()

    @staticmethod
    def familiarity(learner: Learner, images: Any) -> list[float] | None:
        """Higher means more like what was learnt; None where the method cannot tell."""
        familiarity = learner.familiarity(images)
        return None if familiarity is None else familiarity.tolist()
