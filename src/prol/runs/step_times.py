"""Seconds of steps from a number or from an earlier run on a clock."""

from __future__ import annotations

import json

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
    times = []
    with folder.events.open(encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            if event["event"] == "StepTimed":
                times.append(float(event["seconds"]))
    if not times:
        raise ValueError(f"the run in {text} was not on a clock, so its steps have no times: run it with --rate")
    return tuple(times)
