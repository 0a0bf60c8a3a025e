from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prol.report.sweep import best_of, settings_of
from prol.runs import start
from prol.runs.display import Silent
from prol.runs.executors import Serial
from prol.runs.grid import GridPoint, Request, points_of
from prol.runs.sweep import commands_to_test, folder_name, look_at, sweep
from runs.small_runs import contents


def small_points(vit: str, **changes: Any) -> list[GridPoint]:
    """Two rates of a head and one method without any, on two sizes of chunks."""
    settings: dict[str, Any] = {"backbone": vit, "device": "cpu", "tasks": 2, "limit_per_class": 3, "threads": 1}
    asked = Request(["head_only", "ncm"], ["digits"], [0], {"lr": [0.1, 0.5], "chunk": [5, 10]}, settings)
    return points_of(replace(asked, **changes))


def run_all(points: list[GridPoint], out: Path, said: list[str] | None = None) -> Any:
    return sweep(points, out, Serial(Silent()), (said if said is not None else []).append)


@pytest.fixture(scope="module")
def swept(micro_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("swept")
    assert run_all(small_points(micro_vit), out).failures() == {}
    return out


def written_at(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}


def test_each_point_runs_as_it_would_alone(swept: Path, micro_vit: str, tmp_path: Path) -> None:
    points = small_points(micro_vit)
    assert written_at(swept).keys() == {folder_name(point.plan) for point in points}
    alone = start(points[1].plan, tmp_path / "alone")
    assert contents(swept / folder_name(points[1].plan)) == contents(alone.path)


def test_the_files_hold_the_results_of_the_runs(swept: Path) -> None:
    content = json.loads((swept / "sweep.json").read_text())
    assert content["runs_finished"] == content["runs_asked"] == 6
    for one in content["runs"]:
        result = json.loads((swept / one["folder"] / "result.json").read_text())
        assert one["faa"] == result["metrics"]["faa"]
    heads = [one for one in content["settings"] if one["method"] == "head_only" and one["condition"] == {"chunk": 5}]
    best = next(one for one in content["best"] if one["method"] == "head_only" and one["condition"] == {"chunk": 5})
    assert len(heads) == 2
    assert best["faa"]["mean"] == max(one["faa"]["mean"] for one in heads)
    assert len((swept / "sweep.csv").read_text().splitlines()) == 7
    assert "6 of 6 runs finished" in (swept / "sweep.md").read_text()


def test_the_same_again_keeps_what_is_finished_and_a_larger_grid_adds_to_it(micro_vit: str, swept: Path) -> None:
    before, said = written_at(swept), []
    run_all(small_points(micro_vit), swept, said)
    assert said == ["6 of 6 runs are finished already"]
    states = look_at(small_points(micro_vit, grid={"lr": [0.1, 0.5, 1.0], "chunk": [5]}), swept)
    assert [run.state for run in states.values()] == ["finished", "finished", "not begun", "finished"]
    assert written_at(swept) == before


def test_a_stopped_sweep_goes_on_where_it_was(swept: Path, micro_vit: str, tmp_path: Path) -> None:
    class Interrupted(Exception):
        """As if the process had been killed when two runs were finished."""

    def stop(line: str) -> None:
        if "(2 of 6 runs, about" in line:
            raise Interrupted

    points = small_points(micro_vit)
    with pytest.raises(Interrupted):
        sweep(points, tmp_path, Serial(Silent()), stop)
    assert json.loads((tmp_path / "sweep.json").read_text())["runs_finished"] == 2
    kept, stopped = sorted(written_at(tmp_path))
    before = written_at(tmp_path)[kept]
    (tmp_path / stopped / "result.json").unlink()
    assert look_at(points, tmp_path)[stopped].state == "unfinished"
    run_all(points, tmp_path)
    assert written_at(tmp_path)[kept] == before
    assert {name: contents(tmp_path / name) for name in written_at(swept)} == {
        name: contents(swept / name) for name in written_at(swept)
    }


def test_a_run_that_fails_does_not_stop_the_others(micro_vit: str, tmp_path: Path) -> None:
    said: list[str] = []
    finished = run_all(small_points(micro_vit, grid={"lr": [1e308, 0.1]}), tmp_path, said)
    (failed,) = finished.failures()
    assert failed.startswith("head_only-lr=1e+308-")
    assert [run.state for run in finished.runs] == ["failed", "finished", "finished"]
    assert any("failed: " in line and "the loss is not finite" in line for line in said)
    assert "the loss is not finite" in (tmp_path / "sweep.md").read_text()


def test_what_lies_there_must_be_what_is_asked_for(micro_vit: str, swept: Path, tmp_path: Path) -> None:
    points = small_points(micro_vit)
    other = [replace(point, plan=replace(point.plan, checkpoint_every=3)) for point in points]
    with pytest.raises(ValueError, match="checkpoint_every 50, requested is 3: choose another --out"):
        run_all(other, swept)
    missing = [replace(point, plan=replace(point.plan, dataset="folder", data="nowhere")) for point in points]
    with pytest.raises((ValueError, FileNotFoundError), match="nowhere"):
        run_all(missing, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_was_chosen_can_be_measured_by_a_command(swept: Path, micro_vit: str) -> None:
    points = small_points(micro_vit)
    runs = list(look_at(points, swept).values())
    commands = commands_to_test(points, best_of(settings_of(runs)))
    assert len(commands) == 2
    assert commands[0].startswith("prol compare head_only:lr=0.")
    assert " ncm digits --seeds 0 --out runs/compare-digits-chunk=5 " in commands[0]
    assert all(f"--backbone {micro_vit} --tasks 2" in command for command in commands)
    assert "--chunk 5 --limit-per-class 3" in commands[0]
