"""How familiar images looked before they were learnt: what "none of these" is calibrated on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from prol.labels import Label
from prol.serve.intake import Picture
from prol.serve.pending import Waiting
from prol.serve.snapshots import Snapshot
from prol.serve.unknowns import Unknowns

ALWAYS = 20
"""Chunks that are looked at whatever it costs."""
SHARE = 0.1
"""Of the time since then that may go into looking."""


class Calibrator:
    """Looks at chunks through the newest snapshot, where everything is solved already, and not at every one."""

    def __init__(self, novelty: dict[str, Any] | None, snapshot: Callable[[], Snapshot]) -> None:
        self._unknowns, self._snapshot = Unknowns(novelty), snapshot
        self._looks, self._spent, self._began = 0, 0.0, time.monotonic()

    def images(self, images: Sequence[Picture], labels: Sequence[Label]) -> None:
        if not self._due():
            return
        began, snapshot = time.monotonic(), self._snapshot()
        familiarity = snapshot.familiarity(images)
        if familiarity is not None:
            self._unknowns.observe(familiarity, [label in snapshot.classes for label in labels])
        self._looks += 1
        self._spent += time.monotonic() - began

    def predicted(self, waiting: Sequence[Waiting], labels: Sequence[Label]) -> None:
        """Images that were looked at when they were predicted cost nothing more."""
        seen = [(one, label) for one, label in zip(waiting, labels, strict=True) if one.familiarity is not None]
        if seen:
            familiarity = [one.familiarity for one, _ in seen if one.familiarity is not None]
            self._unknowns.observe(familiarity, [label in one.known for one, label in seen])

    def state(self) -> dict[str, Any]:
        return self._unknowns.state()

    def go_back(self, novelty: dict[str, Any] | None) -> None:
        self._unknowns = Unknowns(novelty)

    def _due(self) -> bool:
        return self._looks < ALWAYS or self._spent < SHARE * (time.monotonic() - self._began)
