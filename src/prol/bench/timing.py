"""Timing steps in blocks: what is done many times, how often, and what came out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

Step = Callable[[], object]
Clock = Callable[[], float]

_MOST_STEPS = 1000
_TRIAL_STEPS = 3


@dataclass(frozen=True)
class Pace:
    """How often a step is made before it is timed, and while it is.

    Args:
        warmup: steps before anything is timed: a GPU compiles and captures in them.
        repeats: blocks that are timed; their median counts.
        steps: steps in a block; as many as last about `block_seconds` when None.
    """

    warmup: int = 3
    repeats: int = 7
    steps: int | None = None
    block_seconds: float = 0.5

    def __post_init__(self) -> None:
        for name, least in (("warmup", 0), ("repeats", 1), ("steps", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")

    @classmethod
    def for_device(
        cls, device: torch.device, warmup: int | None = None, repeats: int = 7, steps: int | None = None
    ) -> Pace:
        """The usual one: a GPU needs more steps before it is at its speed."""
        usual = 20 if device.type == "cuda" else 2
        return cls(usual if warmup is None else warmup, repeats, steps)


@dataclass(frozen=True)
class Timed:
    """Seconds of one step, one value a block of `steps`.

    `warmup` are those of getting ready, with all that is compiled then, and `warnings` what was warned of meanwhile: a
    step that could not be captured as a graph, say, goes on without.
    """

    seconds: tuple[float, ...]
    steps: int
    warmup: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def median(self) -> float:
        return median(self.seconds)

    def row(self, images: int | None = None) -> dict[str, Any]:
        """As a result file holds it; with `images` a step, also how many that is in a second.

        >>> Timed((0.2, 0.1, 0.4), steps=5).row(images=10)["images_per_second"]
        50.0
        """
        content: dict[str, Any] = {
            "seconds": list(self.seconds),
            "steps_in_block": self.steps,
            "warmup_seconds": self.warmup,
            "median": self.median,
            "low": min(self.seconds),
            "high": max(self.seconds),
        }
        if self.warnings:
            content["warnings"] = list(self.warnings)
        return content if images is None else {"images": images, "images_per_second": images / self.median} | content


def waiting(device: torch.device) -> Step:
    """What makes sure that a device has done all it was asked: steps on a GPU only queue their work."""
    return (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)


def time_step(step: Step, pace: Pace, wait: Step, clock: Clock = time.perf_counter) -> Timed:
    """Warms one step up and times it."""
    size = warm_up(step, pace, wait, clock)
    return Timed(tuple(time_block(step, size, wait, clock) / size for _ in range(pace.repeats)), size)


def warm_up(step: Step, pace: Pace, wait: Step, clock: Clock) -> int:
    """Makes the steps that are not timed; returns how many make a block."""
    for _ in range(pace.warmup):
        step()
    wait()
    if pace.steps is not None:
        return pace.steps
    seconds = time_block(step, _TRIAL_STEPS, wait, clock) / _TRIAL_STEPS
    return min(_MOST_STEPS, max(1, round(pace.block_seconds / max(seconds, 1e-9))))


def time_block(step: Step, count: int, wait: Step, clock: Clock) -> float:
    """Seconds of `count` steps; a GPU is awaited once at the end, so that its work overlaps as it does in use."""
    wait()
    start = clock()
    for _ in range(count):
        step()
    wait()
    return clock() - start
