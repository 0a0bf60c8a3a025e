"""Experiments that share a folder: one at a time; and summaries that cannot be written while runs are at work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from paper.reproducing import Hear, Noting, Outcomes, Recording, small_scale
from prol.files import locked_folder
from prol.paper.grid import Grid, Outcome
from prol.paper.items import Want, pick
from prol.paper.reproduction import render, reproduce
from prol.runs import Plan
from prol.runs.comparison import compare
from prol.runs.display import Silent
from prol.runs.executors import Executor, Serial
from prol.runs.folder import RunFolder
from prol.runs.grid import GridPoint, Request, points_of
from prol.runs.sweep import sweep
from runs.small_runs import small_plan, write_small_vit


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prol.paper.item_files.plot_sheet", lambda *_: [])


def points(micro_vit: str, seeds: list[int], grid: dict[str, list[int]] | None = None) -> list[GridPoint]:
    settings = {"backbone": micro_vit, "device": "cpu", "tasks": 2, "limit_per_class": 2, "threads": 1}
    return points_of(Request(["ncm"], ["digits"], seeds, grid or {}, settings))


def swept(micro_vit: str, out: Path, executor: Executor, say: Callable[[str], None]) -> None:
    sweep(points(micro_vit, [0, 1, 2]), out, executor, say)


def compared(micro_vit: str, out: Path, executor: Executor, say: Callable[[str], None]) -> None:
    compare([small_plan(micro_vit)], [0, 1, 2], out, say=say, executor=executor)


def reproduced(micro_vit: str, out: Path, executor: Executor, say: Callable[[str], None]) -> None:
    reproduce(pick(["main"]), small_scale(micro_vit), out, executor, say=say)


@pytest.mark.parametrize("experiment", [swept, compared, reproduced])
def test_a_second_experiment_in_a_folder_is_refused_before_it_begins(
    micro_vit: str, tmp_path: Path, experiment: Callable[..., None]
) -> None:
    executor = Noting()
    with locked_folder(tmp_path), pytest.raises(ValueError, match="another process is running"):
        experiment(micro_vit, tmp_path, executor, lambda _: None)
    assert executor.asked == []
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    experiment(micro_vit, tmp_path, executor, lambda _: None)
    assert executor.asked


def test_tables_are_not_written_beside_a_reproduction(micro_vit: str, tmp_path: Path) -> None:
    reproduced(micro_vit, tmp_path, Noting(), lambda _: None)
    with locked_folder(tmp_path), pytest.raises(ValueError, match="another process is running"):
        render(pick(["main"]), tmp_path)


class Blocking:
    """An executor that puts a folder in a summary's place before the first run ends; it goes before that of `until`."""

    def __init__(self, summary: Path, until: int) -> None:
        self.summary, self.until = summary, until

    def execute(self, pending: dict[Path, Plan], hear: Hear) -> Outcomes:
        for number, outcome in enumerate(Serial(Silent()).execute(pending, hear)):
            if number == 0:
                self.summary.unlink()
                (self.summary / "in the way").mkdir(parents=True)
            if number == self.until:
                (self.summary / "in the way").rmdir()
                self.summary.rmdir()
            yield outcome


@pytest.mark.parametrize(("experiment", "file"), [(swept, "sweep.json"), (compared, "comparison.json")])
def test_a_summary_that_cannot_be_written_stops_no_run(
    micro_vit: str, tmp_path: Path, experiment: Callable[..., None], file: str
) -> None:
    said: list[str] = []
    experiment(micro_vit, tmp_path / "passing", Blocking(tmp_path / "passing" / file, 2), said.append)
    assert sum("cannot be written, runs continue without it for now" in line for line in said) == 1
    assert "(3 of 3 runs)" in said[-1]
    content = json.loads((tmp_path / "passing" / file).read_text())
    assert content.get("runs_finished", 3) == 3
    assert len(content.get("rows", [{"seeds": [0, 1, 2]}])[0]["seeds"]) == 3
    with pytest.raises(OSError, match="directory"):
        experiment(micro_vit, tmp_path / "lasting", Blocking(tmp_path / "lasting" / file, 9), said.append)
    assert len(list((tmp_path / "lasting").glob("*/result.json"))) == 3


def test_a_smaller_sweep_says_what_its_summary_leaves_out(micro_vit: str, tmp_path: Path) -> None:
    said: list[str] = []
    sweep(points(micro_vit, [0, 1], {"chunk": [5, 10]}), tmp_path, Serial(Silent()), said.append)
    assert not any("not requested now" in line for line in said)
    sweep(points(micro_vit, [1], {"chunk": [5]}), tmp_path, Serial(Silent()), said.append)
    assert any("not requested now: 3; sweep.json" in line for line in said)
    assert json.loads((tmp_path / "sweep.json").read_text())["runs_asked"] == 1
    whole = sweep(points(micro_vit, [0, 1], {"chunk": [5, 10]}), tmp_path, Noting())
    assert {run.state for run in whole.runs} == {"finished"}


def test_a_smaller_reproduction_says_what_its_table_leaves_out(micro_vit: str, tmp_path: Path) -> None:
    scale, said = small_scale(micro_vit), []
    reproduce(pick(["main"]), scale, tmp_path, say=said.append)
    assert not any("without now" in line for line in said)
    reproduce(pick(["main"]), replace(scale, picked={"ncm": {}}), tmp_path, say=said.append)
    assert sum("that it is without now: 1, as they are not requested or" in line for line in said) == 1


def test_a_reproduction_of_nothing_leaves_the_earlier_one_as_it_is(tmp_path: Path) -> None:
    """As where a disk with the weights is not there this time."""
    scale, said = small_scale(write_small_vit(tmp_path, "test_vit")), []
    reproduce(pick(["main"]), scale, tmp_path / "out", say=said.append)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out" / "main").iterdir()}
    (tmp_path / "small.safetensors").unlink()
    with pytest.raises(ValueError, match=r"nothing can be run: .*small\.safetensors does not exist"):
        reproduce(pick(["main"]), scale, tmp_path / "out", say=said.append)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out" / "main").iterdir()} == before
    assert render(pick(["main"]), tmp_path / "out")[0].finished_runs == 2


def forget(run: RunFolder) -> None:
    """Makes a run one of an older version, which did not record whether others were running."""
    config = json.loads(run.config.read_text())
    del config["side_by_side"]
    run.config.write_text(json.dumps(config))


@pytest.mark.parametrize(("experiment", "file"), [(swept, "sweep.json"), (compared, "comparison.json")])
def test_runs_one_at_a_time_have_no_company(
    micro_vit: str, tmp_path: Path, experiment: Callable[..., None], file: str
) -> None:
    """Whoever executes them, and whatever an earlier summary says of runs that are gone."""
    one_at_a_time = Recording()
    one_at_a_time.jobs = 1
    experiment(micro_vit, tmp_path, one_at_a_time, lambda _: None)
    content = json.loads((tmp_path / file).read_text())
    assert content["side_by_side"] == {}
    names = sorted(path.parent.name for path in tmp_path.glob("*/result.json"))
    for name in names[1:]:
        shutil.rmtree(tmp_path / name)
    forget(RunFolder(tmp_path / names[0]))
    (tmp_path / file).write_text(json.dumps({**content, "side_by_side": dict.fromkeys(names, True)}))
    experiment(micro_vit, tmp_path, Serial(Silent()), lambda _: None)
    assert json.loads((tmp_path / file).read_text())["side_by_side"] == {names[0]: True}


@pytest.mark.parametrize(("experiment", "file"), [(swept, "sweep.json"), (compared, "comparison.json")])
def test_a_run_that_was_not_begun_had_no_company(
    micro_vit: str, tmp_path: Path, experiment: Callable[..., None], file: str
) -> None:
    class Interrupted(Recording):
        """The first of three runs is over when all ends."""

        def execute(self, pending: Mapping[Path, Plan], hear: Hear) -> Outcomes:
            yield next(super().execute(pending, hear))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        experiment(micro_vit, tmp_path, Interrupted(), lambda _: None)
    beside = json.loads((tmp_path / file).read_text())["side_by_side"]
    assert beside == {path.parent.name: True for path in tmp_path.glob("*/result.json")}
    assert len(beside) == 1


def test_a_run_that_cannot_be_read_for_a_moment_stops_no_reproduction(
    micro_vit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reproduced(micro_vit, tmp_path, Serial(Silent()), lambda _: None)
    said: list[str] = []
    outcomes, failures = Grid.outcomes, [OSError(5, "Input/output error")]

    def failing_once(grid: Grid, wants: Sequence[Want]) -> list[Outcome]:
        if failures:
            raise failures.pop()
        return outcomes(grid, wants)

    monkeypatch.setattr(Grid, "outcomes", failing_once)
    reproduced(micro_vit, tmp_path, Serial(Silent()), said.append)
    assert any("main cannot be written" in line and "Input/output error" in line for line in said)
    assert failures == []


def test_a_finished_sweep_needs_its_weights_no_more(micro_vit: str, tmp_path: Path) -> None:
    architecture, _, file = micro_vit.partition("@")
    weights = Path(shutil.copy(file, tmp_path / "weights.safetensors"))
    asked = points(f"{architecture}@{weights}", [0])
    sweep(asked, tmp_path / "out", Serial(Silent()))
    weights.unlink()
    assert sweep(asked, tmp_path / "out", Noting()).failures() == {}
    with pytest.raises((ValueError, FileNotFoundError), match=r"weights\.safetensors"):
        sweep(points(f"{architecture}@{weights}", [0, 1]), tmp_path / "out", Noting())


def test_a_sweep_remembers_which_runs_had_company(micro_vit: str, tmp_path: Path) -> None:
    first, *others = points(micro_vit, [0, 1, 2])
    sweep([first], tmp_path, Recording())
    sweep([first, *others], tmp_path, Recording())
    done = sweep([first, *others], tmp_path, Serial(Silent()))
    beside = json.loads((tmp_path / "sweep.json").read_text())["side_by_side"]
    assert beside == {run.folder: True for run in done.runs if run.seed > 0}
