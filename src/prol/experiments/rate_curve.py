"""Accuracy against the rate at which data come: one run a rate, and one in which data wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from prol.artifacts.atomic import write_json
from prol.evaluation import Clock
from prol.runs import Display, Plan, RunFolder, resume, start
from prol.runs.display import Silent
from prol.runs.setup import changes, set_up


@dataclass(frozen=True)
class RatePoint:
    """What became of the stream at one rate; where `rate` is None data waited."""

    rate: float | None
    run: str
    faa: float
    caa: float
    missed_share: float
    mean_lag: float
    most_lag: float


def rate_curve(
    plan: Plan, rates: Sequence[float], out: str | Path, display: Display | None = None, clock: Clock | None = None
) -> list[RatePoint]:
    """Runs the plan at each rate in `out/rate-R` and without a clock in `out/waiting`, and writes `out/curve.json`.

    Runs that are there already are kept, and unfinished ones go on, if they are of the same plan.

    Args:
        clock: how many chunks may wait and what a step takes; its own rate has no effect.
    """
    if not rates:
        raise ValueError("a rate curve needs at least one rate, in images a second")
    folder, display = Path(out), display or Silent()
    clocks = [replace(clock or Clock(rate), rate=rate) for rate in sorted(set(rates))]
    points = [_point(replace(plan, clock=None), folder / "waiting", display)]
    points += [_point(replace(plan, clock=one), folder / f"rate-{one.rate:g}", display) for one in clocks]
    write_json(folder / "curve.json", {"points": as_rows(points)})
    return points


def as_rows(points: Sequence[RatePoint]) -> list[dict[str, Any]]:
    """The points as `curve.json` holds them."""
    return [asdict(point) for point in points]


def _point(plan: Plan, path: Path, display: Display) -> RatePoint:
    run = RunFolder(path)
    status = run.status()
    if status in ("finished", "unfinished"):
        _require_same_plan(plan, run)
    finished = start(plan, path, display) if status in ("empty", "something else") else resume(path, display)
    result = finished.read(finished.result)
    kept_up = result["clock"] or {"rate": None, "missed_share": 0.0, "mean_lag": 0.0, "most_lag": 0.0}
    return RatePoint(
        rate=kept_up["rate"],
        run=path.name,
        faa=result["metrics"]["faa"],
        caa=result["metrics"]["caa"],
        missed_share=kept_up["missed_share"],
        mean_lag=kept_up["mean_lag"],
        most_lag=kept_up["most_lag"],
    )


def _require_same_plan(plan: Plan, run: RunFolder) -> None:
    """A run found in the folder must be the one that is asked for."""
    for name, (there, asked) in changes(run.read(run.config), set_up(plan).config).items():
        if not name.startswith("versions."):
            raise ValueError(
                f"{run.path} holds a run with {name} {there!r}, asked for is {asked!r}: choose another --out"
            )
