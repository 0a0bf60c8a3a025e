from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prol.evaluation import Clock
from prol.report.run import plot_rates
from prol.runs.rate_curve import rate_curve
from runs.small_runs import small_plan, write_small_vit


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_vit(tmp_path_factory.mktemp("weights"), "test_vit")


def test_faster_data_are_missed_more_and_a_found_run_is_not_repeated(vit: str, tmp_path: Path) -> None:
    plan, clock = small_plan(vit), Clock(rate=1, step_seconds=0.1)
    points = rate_curve(plan, [100, 10, 400], tmp_path, clock=clock)
    assert [point.rate for point in points] == [None, 10, 100, 400]
    assert points[1].missed_share == 0
    assert 0 < points[2].missed_share < points[3].missed_share < 1
    assert points[0].faa == points[1].faa
    written = json.loads((tmp_path / "curve.json").read_text())["points"]
    assert [row["missed_share"] for row in written] == [point.missed_share for point in points]
    results = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/result.json")}
    assert len(results) == 4
    assert rate_curve(plan, [100, 10, 400], tmp_path, clock=clock) == points
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/result.json")} == results


def test_measured_times_of_the_lowest_rate_are_replayed_at_the_others(vit: str, tmp_path: Path) -> None:
    rate_curve(small_plan(vit), [1e-3, 1e6], tmp_path, clock=Clock(rate=5, keep=2))
    slow, fast = (json.loads((tmp_path / f"rate-{rate}" / "steps.json").read_text()) for rate in ("0.001", "1e+06"))
    assert 0 < len(fast["step_seconds"]) < len(slow["step_seconds"]) == 10
    assert fast["step_seconds"] == slow["step_seconds"][: len(fast["step_seconds"])]
    config = json.loads((tmp_path / "rate-1e+06" / "config.json").read_text())
    assert config["clock"]["step_seconds"] == slow["step_seconds"]
    assert config["clock"]["keep"] == 2
    mean = json.loads((tmp_path / "curve.json").read_text())["mean_step_seconds"]
    assert mean == pytest.approx(sum(slow["step_seconds"]) / 10)


def test_a_run_of_another_plan_in_the_folder_is_refused(vit: str, tmp_path: Path) -> None:
    plan = small_plan(vit)
    rate_curve(plan, [50], tmp_path, clock=Clock(1, step_seconds=0.1))
    with pytest.raises(ValueError, match=r"seed 0, requested is 1: choose another --out"):
        rate_curve(replace(plan, seed=1), [50], tmp_path, clock=Clock(1, step_seconds=0.1))


def test_no_rates_are_refused(vit: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one rate"):
        rate_curve(small_plan(vit), [], tmp_path)


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    points = [
        {"rate": None, "faa": 50.0, "missed_share": 0.0},
        {"rate": 10.0, "faa": 50.0, "missed_share": 0.0},
        {"rate": 100.0, "faa": 20.0, "missed_share": 0.7},
    ]
    plot_rates(points, "a curve", tmp_path / "curve.svg")
    drawn = (tmp_path / "curve.svg").read_text()
    assert drawn.count("<path") > 10
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        plot_rates(points, "a curve", tmp_path / "curve.pdf")
