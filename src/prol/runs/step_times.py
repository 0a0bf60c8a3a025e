"""Seconds of steps from a number or from an earlier run on a clock."""

from __future__ import annotations

import json
from pathlib import Path

from prol.runs.folder import RunFolder


def read_step_seconds(text: str | None) -> float | tuple[float, ...] | None:
    """A number as it stands; otherwise the folder of a run, whose steps take as long as they did there.

    >>> read_step_seconds("0.02")
    0.02
    """
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        folder = RunFolder(text)
    folder.require_run()
    if not folder.steps.is_file():
        raise ValueError(
            f"{text} holds no times of steps (steps.json): give the folder of a finished run on a clock, or a number"
        )
    return tuple(float(seconds) for seconds in folder.read(folder.steps)["step_seconds"])


def logged_step_seconds(events: Path) -> list[float]:
    """What each step took, from a run's log."""
    with events.open(encoding="utf-8") as lines:
        told = (json.loads(line) for line in lines if '"StepTimed"' in line)
        return [float(event["seconds"]) for event in told if event["event"] == "StepTimed"]
