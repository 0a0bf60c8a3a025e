"""MOS's dials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prol.methods.adapter_training import AdapterOptions
from prol.parts.class_gaussians import Covariance


@dataclass(frozen=True)
class MOSOptions(AdapterOptions):
    """Dials of MOS."""

    bottleneck: int = 16
    scale: float = 0.1
    """Weight of an adapter's output beside the MLP."""
    merge: float = 0.1
    """Share of the earlier adapters' mean that the current one takes over after each step."""
    reg: float = 0.1
    """Weight of the term that pushes features apart."""
    head_lr_factor: float = 0.1
    """Rate of the head as a share of lr."""
    weight_decay: float = 5e-4
    """Of the adapter; the head has none, or rows of classes that are not in play would shrink."""
    rounds: int = 4
    """How often at most an answer may choose the adapter anew."""
    alignment: bool = True
    """Trains the head again on features drawn from the class Gaussians when a task ends."""
    align_when: Literal["asked", "task_end"] = "asked"
    """asked: predictions also see the head as it would be if the task ended now; task_end: the head as it is."""
    align_epochs: int = 30
    align_lr: float = 0.005
    covariance: Covariance = "diagonal"
    """diagonal: D numbers a class; full: D x D."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_whole(1, "bottleneck", "rounds", "align_epochs")
        self.require_amount("scale", "reg", "head_lr_factor", "weight_decay", "align_lr")
        self.require_share("merge")
