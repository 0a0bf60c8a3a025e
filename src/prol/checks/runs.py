"""Checks of finished runs, from their files: accuracy beside NCM, calibration, load of the machine, growing times."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, median

import numpy as np

from prol.checks.finding import Outcome, Status, check, listed
from prol.checks.subject import NCM, Subject
from prol.files import read_text
from prol.report.comparison import stream_differences
from prol.runfiles import RunFiles

CLEARLY = 0.5
"""Points of final accuracy by which a method may be below NCM before that is more than a tip."""
ERROR_TIP, ERROR_ISSUE = 5.0, 10.0
"""Points of expected calibration error."""
SPARE = 0.5
"""Running processes, averaged over a minute, by which they may exceed the processors."""
FEWEST = 200
"""Test images below which a calibration error says little: it is above zero by chance."""
GROWS, GROWS_MUCH = 1.5, 3.0
"""Seconds per image at the end, by those at the beginning."""
_PARTS = 8
_ABSENT = Outcome.absent("there is no finished run here")


@check("PC301", "Worse than NCM")
def worse_than_ncm(subject: Subject) -> Outcome:
    if not subject.runs:
        return _ABSENT
    others = [run for run in subject.runs if run.config["method"] != NCM]
    if not others:
        return Outcome.absent("only NCM was run")
    gaps: dict[str, list[float]] = {}
    for run in others:
        same = [ncm for ncm in subject.rivals if not stream_differences(ncm.config, run.config)]
        same = [ncm for ncm in same if ncm.config["seed"] == run.config["seed"]] or same
        if same:
            known = fmean(ncm.result["metrics"]["faa"] for ncm in same)
            gaps.setdefault(run.name, []).append(run.result["metrics"]["faa"] - known)
    if not gaps:
        return Outcome.absent("no run of ncm on the same stream is in the folder: add it with `prol compare ncm ...`")
    behind = {name: fmean(values) for name, values in gaps.items() if fmean(values) < 0}
    if not behind:
        return Outcome("passed", f"{listed(sorted(gaps))}: at least the final accuracy of NCM")
    places = tuple(f"{name}: {gap:+.2f} points" for name, gap in sorted(behind.items(), key=lambda one: one[1]))
    status: Status = "issue" if min(behind.values()) < -CLEARLY else "tip"
    return Outcome(status, f"final accuracy below that of NCM on the same features: {listed(places)}", places)


@check("PC302", "Probabilities not calibrated")
def calibrated(subject: Subject) -> Outcome:
    errors = {
        run.folder: error
        for run in subject.runs
        if (error := run.result["anytime"]["calibration_error"]) is not None and sum(run.result["test_sizes"]) >= FEWEST
    }
    if not errors:
        return Outcome.absent(f"no calibration error on {FEWEST} images or more") if subject.runs else _ABSENT
    worst = max(errors.values())
    if worst < ERROR_TIP:
        return Outcome("passed", f"expected calibration error of at most {worst:.1f} points")
    high = sorted(((name, error) for name, error in errors.items() if error >= ERROR_TIP), key=lambda one: -one[1])
    places = tuple(f"{name}: {error:.1f} points" for name, error in high)
    status: Status = "issue" if worst >= ERROR_ISSUE else "tip"
    return Outcome(status, f"expected calibration error of {ERROR_TIP:g} points or more: {listed(places)}", places)


@check("PC303", "Machine busy")
def machine_busy(subject: Subject) -> Outcome:
    if not subject.runs:
        return _ABSENT
    busy, known, on_a_clock = dict[str, str](), False, False
    for run in subject.runs:
        start, end = run.config.get("load_start"), None if run.timing is None else run.timing.get("load_end")
        own, processors = run.config["threads"], run.config.get("processors")
        known |= run.side_by_side or processors is not None
        found = ["other runs beside it"] if run.side_by_side else []
        for when, load in (("start", None if start is None else start + own), ("end", end)):
            if load is not None and processors is not None and load > processors + SPARE:
                found.append(f"{load:.1f} processes on {processors} processors at its {when}")
        if found:
            busy[run.folder] = " and ".join(found)
            on_a_clock |= run.config["clock"] is not None
    if not known:
        return Outcome.absent("the load of the machine was not recorded")
    if not busy:
        return Outcome("passed", "nothing else was running")
    places = tuple(f"{name}: {what}" for name, what in busy.items())
    consequence = "speeds are too low" + (", so that arrivals were missed" if on_a_clock else "")
    return Outcome("issue" if on_a_clock else "tip", f"{consequence}: {listed(places, 3)}", places)


@check("PC304", "Chunk times growing")
def growing_times(subject: Subject) -> Outcome:
    if not subject.runs:
        return _ABSENT
    factors = {run.folder: factor for run in subject.runs if (factor := growth(_times(run))) is not None}
    if not factors:
        return Outcome.absent("fewer than four tasks or steps were timed")
    worst = max(factors.values())
    if worst < GROWS:
        return Outcome("passed", f"learning took at most {max(worst, 1):.1f} times as long at the end")
    places = tuple(f"{name}: {factor:.1f} times" for name, factor in factors.items() if factor >= GROWS)
    status: Status = "issue" if worst >= GROWS_MUCH else "tip"
    return Outcome(status, f"an image took longer to learn at the end than at the beginning: {listed(places)}", places)


def _times(run: RunFiles) -> list[float]:
    """Seconds per step where each was timed, else seconds per image by task."""
    steps = run.path / "steps.json"
    if steps.is_file():
        import json

        return [float(one) for one in json.loads(read_text(steps))["step_seconds"]]
    tasks = [] if run.timing is None else run.timing["tasks"]
    return [task["train_seconds"] / task["train_images"] for task in tasks if task["train_images"]]


def growth(times: list[float]) -> float | None:
    """The time at the end by that at the beginning, 1 where it does not rise steadily; None for fewer than four.

    The first of them is left out: networks are compiled and tuned then.

    >>> growth([9, 1, 2, 3, 4]), growth([9, 1, 3, 1, 3]), growth([1, 2, 3])
    (4.0, 1.0, None)
    """
    later = times[1:]
    if len(later) < 3:
        return None
    parts = [float(median(part)) for part in np.array_split(later, min(_PARTS, len(later)))]
    rises = sum(after > before for before, after in pairwise(parts))
    return parts[-1] / parts[0] if rises >= 0.75 * (len(parts) - 1) and parts[0] > 0 else 1.0
