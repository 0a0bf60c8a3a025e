"""Accuracy against the arrival rate of the data: one run per rate, and one in which data wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

from prol.evaluation import Clock
from prol.files import write_json
from prol.runs.display import Display, Silent
from prol.runs.executors import finish, with_threads
from prol.runs.plan import Plan
from prol.runs.threads import free_threads
from prol.runs.timing import read_step_seconds


@dataclass(frozen=True)
class RatePoint:
    """The result at one rate; with `rate` None the data waited."""

    rate: float | None
    run: str
    faa: float
    caa: float
    missed_share: float
    mean_lag: float | None
    most_lag: float | None


def rate_curve(
    plan: Plan, rates: Sequence[float], out: str | Path, display: Display | None = None, clock: Clock | None = None
) -> list[RatePoint]:
    """Runs the plan at each rate in `out/rate-R` and without a clock in `out/waiting`, and writes `out/curve.json`.

    Finished runs in the folder are reused and unfinished ones resumed, if they are of the same plan. By default the
    time of a step is measured once, at the lowest rate: the other rates replay those times, so that the curve shows
    the rate and not the load of the machine.

    Args:
        clock: how many chunks may wait and the time of a step; its own rate has no effect.
    """
    if not rates:
        raise ValueError("a rate curve needs at least one rate, in images per second")
    folder, display = Path(out), display or Silent()
    threads = free_threads()
    points = [_point(replace(plan, clock=None), folder / "waiting", display, threads)]
    clock, lowest = clock or Clock(rates[0]), f"rate-{min(rates):g}"
    for rate in sorted(set(rates)):
        clock = replace(clock, rate=rate)
        points.append(_point(replace(plan, clock=clock), folder / f"rate-{rate:g}", display, threads))
        if clock.step_seconds is None:
            clock = replace(clock, step_seconds=read_step_seconds(str(folder / lowest)))
    times = clock.step_seconds
    seconds = fmean(times) if isinstance(times, tuple) else times
    write_json(folder / "curve.json", {"mean_step_seconds": seconds, "points": [asdict(point) for point in points]})
    return points


def _point(plan: Plan, path: Path, display: Display, threads: int) -> RatePoint:
    finished = finish(with_threads(plan, path, threads), path, display)
    result = finished.read(finished.result)
    clock = result["clock"] or {"rate": None, "missed_share": 0.0, "mean_lag": None, "most_lag": None}
    measured = {name: result["metrics"][name] for name in ("faa", "caa")}
    on_clock = {name: clock[name] for name in ("rate", "missed_share", "mean_lag", "most_lag")}
    return RatePoint(run=path.name, **measured, **on_clock)
