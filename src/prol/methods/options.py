"""Options that several methods share."""

from __future__ import annotations

from dataclasses import dataclass

from prol.backbones.preprocess import Augment, InputRange
from prol.options import Count, Options


@dataclass(frozen=True)
class InputOptions(Options):
    """How images become the network's input."""

    augment: Augment = "none"
    """Random crops and flips of training images (crop_flip), or none."""
    input_range: InputRange = "backbone"
    """Values fed to the network: as the backbone was trained, plain [0, 1] (unit), or [-1, 1] (symmetric)."""
    crop_pct: float | None = None
    """Share of the shorter side that the evaluation crop covers; the backbone's own by default."""


@dataclass(frozen=True)
class TaskOptions(Options):
    """When a task begins where no boundaries are given."""

    task_min_classes: Count = 2
    """Minimum number of classes in a task before an unseen class begins another one."""
    task_min_steps: Count = 50
    """Minimum number of its steps by then."""
