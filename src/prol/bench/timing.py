"""Timing steps in blocks, alone or in turns with others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch

from prol.options import Count, Whole, require_ranges

Step = Callable[[], object]
Clock = Callable[[], float]
Say = Callable[[str], object]

_MOST_STEPS = 1000
_TRIAL_STEPS = 3


@dataclass(frozen=True)
class Pace:
    """How many steps are made before and during timing.

    Args:
        warmup: steps before timing, during which a GPU compiles and captures.
        repeats: timed blocks; the result is their median.
        steps: steps per block; None for as many as take about `block_seconds`.
    """

    warmup: Whole = 3
    repeats: Count = 7
    steps: Count | None = None
    block_seconds: float = 0.5

    def __post_init__(self) -> None:
        require_ranges(self)

    @classmethod
    def for_device(
        cls, device: torch.device, warmup: int | None = None, repeats: int = 7, steps: int | None = None
    ) -> Pace:
        """The default for a device: a GPU needs more warm-up."""
        default = 20 if device.type == "cuda" else 2
        return cls(default if warmup is None else warmup, repeats, steps)


@dataclass(frozen=True)
class Timed:
    """Seconds per step, one value for each block of `steps`.

    `warmup` is the time of the warm-up, including compilation, and `warnings` are those raised meanwhile, for example
    that a step cannot be captured as a graph.
    """

    seconds: tuple[float, ...]
    steps: int
    warmup: float = 0.0
    warnings: tuple[str, ...] = ()

    @property
    def median(self) -> float:
        return median(self.seconds)

    def row(self, images: int | None = None) -> dict[str, Any]:
        """The entries of a result file; with `images` per step, also images per second.

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


def synchronizer(device: torch.device) -> Step:
    """A function that waits until the device is idle: steps on a GPU only queue their work."""
    return (lambda: torch.cuda.synchronize(device)) if device.type == "cuda" else (lambda: None)


def time_step(step: Step, pace: Pace, wait: Step, clock: Clock = time.perf_counter) -> Timed:
    """Warms up one step and times it."""
    size = warm_up(step, pace, wait, clock)
    return Timed(tuple(time_block(step, size, wait, clock) / size for _ in range(pace.repeats)), size)


def warm_up(step: Step, pace: Pace, wait: Step, clock: Clock) -> int:
    """Makes the steps that are not timed; returns the number of steps per block."""
    for _ in range(pace.warmup):
        step()
    wait()
    if pace.steps is not None:
        return pace.steps
    seconds = time_block(step, _TRIAL_STEPS, wait, clock) / _TRIAL_STEPS
    return min(_MOST_STEPS, max(1, round(pace.block_seconds / max(seconds, 1e-9))))


def time_block(step: Step, count: int, wait: Step, clock: Clock) -> float:
    """Seconds of `count` steps, synchronised once at the end, so that work overlaps as it does in practice."""
    wait()
    start = clock()
    for _ in range(count):
        step()
    wait()
    return clock() - start


def silent(line: str) -> None:
    """Discards a progress message."""
    del line


def measure(
    makers: Mapping[str, Callable[[], Step]],
    pace: Pace,
    wait: Step,
    say: Say = silent,
    clock: Clock = time.perf_counter,
) -> dict[str, Timed | str]:
    """Makes several steps, warms them up, and times them in turns, so that slow phases of the machine affect them all.

    A step that fails yields its error in one line, and the others continue. A ValueError from a maker is a mistake in
    the arguments, and is raised.
    """
    results: dict[str, Timed | str] = {}
    ready: dict[str, Timed] = {}
    steps: dict[str, Step] = {}
    for name, make in makers.items():
        start = clock()
        try:
            steps[name] = make()
        except RuntimeError as error:
            results[name] = one_line(error)
            continue
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warnings.filterwarnings("ignore", module=r"torch\b")  # advice of its compiler
                size = warm_up(steps[name], pace, wait, clock)
        except Exception as error:
            results[name] = one_line(error)
            continue
        messages = tuple(dict.fromkeys(_short(str(warning.message)) for warning in caught))
        ready[name] = Timed((), size, clock() - start, messages)
        say(f"{name}: ready after {ready[name].warmup:.1f} s")
    for _ in range(pace.repeats):
        for name, timed in list(ready.items()):
            try:
                seconds = time_block(steps[name], timed.steps, wait, clock) / timed.steps
                ready[name] = replace(timed, seconds=(*timed.seconds, seconds))
            except Exception as error:
                results[name] = one_line(error)
                del ready[name]
    return {name: ready[name] if name in ready else results[name] for name in makers}


def row_of(result: Timed | str, images: int) -> dict[str, Any]:
    """The result of a step on `images` images, as the entries of a result file."""
    return {"error": result} if isinstance(result, str) else result.row(images)


def one_line(error: Exception) -> str:
    """An error as the entry of a row."""
    return _short(f"{type(error).__name__}: {error}")


def _short(text: str) -> str:
    return " ".join(text.split())[:500]
