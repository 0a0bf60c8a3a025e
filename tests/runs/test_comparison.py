from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from prol.runs import Plan, start
from prol.runs.comparison import compare, name_of, read_comparison
from runs.small_runs import contents, small_plan, write_small_vit


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_small_vit(tmp_path_factory.mktemp("weights"), "test_vit")


@pytest.fixture(scope="module")
def plans(vit: str) -> list[Plan]:
    return [small_plan(vit), small_plan(vit, "head_only", options={"lr": "0.5"})]


@pytest.fixture(scope="module")
def compared(plans: list[Plan], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with two seeds each."""
    folder = tmp_path_factory.mktemp("compared")
    assert compare(plans, [0, 1], folder).failures == {}
    return folder


def written_at(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/result.json")}


def test_each_method_runs_with_each_seed_as_it_would_alone(plans: list[Plan], compared: Path, tmp_path: Path) -> None:
    assert written_at(compared).keys() == {
        "ncm-seed0",
        "ncm-seed1",
        "head_only-lr=0.5-seed0",
        "head_only-lr=0.5-seed1",
    }
    alone = start(replace(plans[1], seed=1), tmp_path / "alone")
    assert contents(compared / "head_only-lr=0.5-seed1") == contents(alone.path)


def test_the_summary_holds_the_results_of_the_runs(compared: Path) -> None:
    written = json.loads((compared / "comparison.json").read_text())
    rows = {row["name"]: row for row in written["rows"]}
    assert rows.keys() == {"ncm", "head_only:lr=0.5"}
    for name, folder in (("ncm", "ncm"), ("head_only:lr=0.5", "head_only-lr=0.5")):
        results = [json.loads((compared / f"{folder}-seed{seed}/result.json").read_text()) for seed in (0, 1)]
        assert rows[name]["faa"]["values"] == [result["metrics"]["faa"] for result in results]
        assert rows[name]["footprint"] == results[0]["footprint"]
    assert written["rows"] == sorted(written["rows"], key=lambda row: -row["faa"]["mean"])
    assert "| `head_only:lr=0.5` | 0, 1 |" in (compared / "comparison.md").read_text()


def test_the_same_command_again_keeps_what_is_finished(plans: list[Plan], compared: Path) -> None:
    before, said = written_at(compared), []
    again = compare(plans, [0, 1], compared, say=said.append)
    assert written_at(compared) == before
    assert said == ["4 of 4 runs are finished already"]
    assert again.rows == read_comparison(compared).rows


def test_a_stopped_comparison_goes_on_where_it_was(plans: list[Plan], compared: Path, tmp_path: Path) -> None:
    class Interrupted(Exception):
        """As if the process had been killed when the first run was finished."""

    def stop(line: str) -> None:
        if "finished (2 of 4 runs" in line:
            raise Interrupted

    with pytest.raises(Interrupted):
        compare(plans, [0, 1], tmp_path, say=stop)
    before = written_at(tmp_path)
    assert before.keys() == {"ncm-seed0", "head_only-lr=0.5-seed0"}
    (tmp_path / "head_only-lr=0.5-seed0/result.json").unlink()  # now it is an unfinished run
    assert read_comparison(tmp_path).failures == {"head_only-lr=0.5-seed0": "not finished"}
    compare(plans, [0, 1], tmp_path)
    after = written_at(tmp_path)
    assert len(after) == 4
    assert after["ncm-seed0"] == before["ncm-seed0"]
    for run in after:
        assert contents(tmp_path / run) == contents(compared / run)


def test_a_comparison_can_grow(plans: list[Plan], tmp_path: Path) -> None:
    compare(plans[:1], [0], tmp_path)
    rows = compare(plans[1:], [1], tmp_path).rows
    assert {row.name: row.seeds for row in rows} == {"ncm": (0,), "head_only:lr=0.5": (1,)}


def test_a_method_that_fails_does_not_stop_the_others(vit: str, tmp_path: Path) -> None:
    said: list[str] = []
    plans = [
        small_plan(vit, "head_only", options={"lr": 1e308}),
        small_plan(vit, "nmc"),
        small_plan(vit, options={"distance": "far"}),
        small_plan(vit),
    ]
    comparison = compare(plans, [0, 1], tmp_path, say=said.append)
    assert [row.name for row in comparison.rows] == ["ncm"]
    assert comparison.failures.keys() == {
        f"{name}-seed{seed}" for name in ("head_only-lr=1e+308", "nmc", "ncm-distance=far") for seed in (0, 1)
    }
    lines = comparison.failure_lines()
    assert len(lines) == 3
    assert any(line.startswith("nmc-seed0, nmc-seed1: unknown method 'nmc'; did you mean 'ncm'?") for line in lines)
    assert any("the loss is not finite" in line for line in lines)
    assert "nmc is left out: unknown method 'nmc'" in said[0]
    assert "the loss is not finite" in (tmp_path / "comparison.md").read_text()


def test_where_nothing_can_run_the_mistake_is_told_at_once(plans: list[Plan], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^unknown dataset 'digit'; did you mean 'digits'\?"):
        compare([replace(plan, dataset="digit") for plan in plans], [0], tmp_path / "out")
    with pytest.raises(ValueError, match=r"nmc: unknown method.*; ncm-x=1: unknown option 'x'"):
        compare([replace(plans[0], method="nmc"), replace(plans[0], options={"x": 1})], [0], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_of_another_plan_in_the_folder_are_refused(plans: list[Plan], compared: Path) -> None:
    with pytest.raises(ValueError, match=r"checkpoint_every 2, requested is 3: choose another --out"):
        compare([replace(plan, checkpoint_every=3) for plan in plans], [2], compared)
    with pytest.raises(ValueError, match=r"protocol.chunk 5, requested is 6: choose another --out"):
        compare([replace(plans[0], options={"distance": "euclidean"}, chunk=6)], [0], compared)


def test_a_method_that_changes_the_stream_is_left_out(vit: str, tmp_path: Path) -> None:
    released = small_plan(vit, "prol", options={"blocks": 2, "preset": "released"})
    failures = compare([small_plan(vit), released], [0], tmp_path).failures
    assert list(failures) == ["prol-blocks=2,preset=released-seed0"]
    assert "its options make protocol.options.drop_surplus True" in next(iter(failures.values()))


@pytest.mark.slow
def test_runs_side_by_side_give_the_same_results(plans: list[Plan], compared: Path, tmp_path: Path) -> None:
    said: list[str] = []
    diverging = replace(plans[1], options={"lr": 1e308})
    comparison = compare([plans[1], diverging], [1], tmp_path, jobs=2, say=said.append)
    assert contents(tmp_path / "head_only-lr=0.5-seed1") == contents(compared / "head_only-lr=0.5-seed1")
    assert any(line.startswith("head_only-lr=0.5-seed1: task 3/3: ") for line in said)
    assert "the loss is not finite" in comparison.failures["head_only-lr=1e+308-seed1"]
    assert [row.side_by_side for row in comparison.rows] == [True]
    assert [row.side_by_side for row in read_comparison(tmp_path).rows] == [True]


@pytest.mark.parametrize(
    ("seeds", "jobs", "says"),
    [([], 1, "at least one method and one seed"), ([0, 0], 1, "hold one twice"), ([0], 0, "jobs must be at least 1")],
)
def test_what_cannot_be_compared_is_refused(
    plans: list[Plan], tmp_path: Path, seeds: list[int], jobs: int, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        compare(plans, seeds, tmp_path, jobs=jobs)


def test_methods_must_differ_and_share_their_stream(plans: list[Plan], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ncm is there twice"):
        compare([plans[0], plans[0]], [0], tmp_path)
    with pytest.raises(ValueError, match=r"head_only-lr=0.5 is planned on another stream than ncm"):
        compare([plans[0], replace(plans[1], chunk=7)], [0], tmp_path)


def test_a_folder_without_runs_has_no_table(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no finished run"):
        read_comparison(tmp_path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_comparison(tmp_path / "nowhere")


def test_a_name_is_the_same_for_any_order_of_options_and_fits_any_file_system() -> None:
    assert name_of(Plan("prol", "digits", options={"b": "x/y:z", "a": 1})) == "prol-a=1,b=x_y_z"
