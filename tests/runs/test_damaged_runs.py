"""Runs whose files are damaged: told with what to do, the others kept; nothing stops."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prol.files import make_folder, require_folder
from prol.paper.items import pick
from prol.paper.reproduction import render, reproduce
from prol.paper.scale import PaperScale, read_scale
from prol.runs import Plan, RunFolder, start
from prol.runs.comparison import compare, read_comparison
from prol.runs.display import Silent
from prol.runs.executors import Serial, read_finished
from prol.runs.folder import DamagedRun
from prol.runs.grid import Request, points_of
from prol.runs.setup import changes
from prol.runs.sweep import sweep
from runs.small_runs import small_plan


def change(file: Path, change_it: Callable[[Any], object]) -> None:
    content = json.loads(file.read_text())
    change_it(content)
    file.write_text(json.dumps(content))


Damage = Callable[[RunFolder], object]
DAMAGES: dict[str, Damage] = {
    "a result cut short": lambda run: run.result.write_text(run.result.read_text()[:40]),
    "an empty result": lambda run: run.result.write_text("{}"),
    "a list": lambda run: run.result.write_text("[]"),
    "no timing": lambda run: run.timing.unlink(),
    "a timing of something else": lambda run: run.timing.write_text('{"a": 1}'),
    "a config cut short": lambda run: run.config.write_text(run.config.read_text()[:40]),
    "a config without its format": lambda run: change(run.config, lambda it: it.pop("format")),
    "a device that is none": lambda run: change(run.config, lambda it: it.update(device=None)),
    "no final accuracy": lambda run: change(run.result, lambda it: it["metrics"].pop("faa")),
    "an accuracy that is no number": lambda run: change(run.result, lambda it: it["metrics"].update(faa=math.nan)),
    "a footprint in part": lambda run: change(run.result, lambda it: it["footprint"].pop("samples_stored")),
    "no classes told of": lambda run: change(run.result, lambda it: it["told"].clear()),
    "brackets without end": lambda run: run.result.write_text("[" * 100_000),
    "a task without its time": lambda run: change(run.timing, lambda it: it["tasks"][0].pop("train_seconds")),
}


@pytest.fixture(autouse=True)
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prol.paper.item_files.plot_sheet", lambda *_: [])


ONE_PER_FILE = ("a result cut short", "no timing", "a config cut short")


@pytest.fixture(params=ONE_PER_FILE)
def damage(request: pytest.FixtureRequest) -> Damage:
    return DAMAGES[request.param]


@pytest.fixture(scope="module")
def two_runs(micro_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    compare([small_plan(micro_vit)], [0, 1], folder)
    return folder


def remedy(run: RunFolder) -> str:
    return f"move {run.path} away and start the run again"


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_that_is_not_what_it_must_be_is_refused(two_runs: Path, tmp_path: Path, name: str) -> None:
    run = RunFolder(shutil.copytree(two_runs / "ncm-seed0", tmp_path / "run"))
    DAMAGES[name](run)
    with pytest.raises(DamagedRun) as raised:
        read_finished(run)
    assert remedy(run) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_comparison_tells_of_it_and_goes_on(micro_vit: str, two_runs: Path, tmp_path: Path, damage: Damage) -> None:
    folder = shutil.copytree(two_runs, tmp_path / "compared")
    run = RunFolder(folder / "ncm-seed0")
    damage(run)
    comparisons = (compare([small_plan(micro_vit)], [0, 1, 2], folder), read_comparison(folder))
    for comparison in comparisons:
        assert comparison.failures.keys() == {"ncm-seed0"}
        assert remedy(run) in comparison.failures["ncm-seed0"]
        assert comparison.rows[0].seeds == (1, 2)


def test_a_sweep_tells_of_it_and_goes_on(micro_vit: str, tmp_path: Path, damage: Damage) -> None:
    settings = {"backbone": micro_vit, "device": "cpu", "tasks": 2, "limit_per_class": 2, "threads": 1}
    points = points_of(Request(["ncm"], ["digits"], [0, 1], {}, settings))
    first = sweep(points[:1], tmp_path, Serial(Silent()))
    run = RunFolder(tmp_path / first.runs[0].folder)
    damage(run)
    said: list[str] = []
    done = sweep(points, tmp_path, Serial(Silent()), said.append)
    assert [one.state for one in done.runs] == ["failed", "finished"]
    assert remedy(run) in done.failures()[run.path.name]
    assert any("failed: " in line and remedy(run) in line for line in said)
    shutil.rmtree(run.path)
    assert sweep(points, tmp_path, Serial(Silent())).failures() == {}


def statistics_only(micro_vit: str) -> PaperScale:
    return replace(read_scale("smoke").on("digits"), backbone=micro_vit, threads=1, picked={"ncm": {}, "slda": {}})


@pytest.fixture(scope="module")
def two_rows(micro_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    reproduce(pick(["main"]), statistics_only(micro_vit), folder)
    return folder


def test_a_reproduction_tells_of_it_and_goes_on(micro_vit: str, two_rows: Path, tmp_path: Path) -> None:
    folder, scale, said = shutil.copytree(two_rows, tmp_path / "rows"), statistics_only(micro_vit), list[str]()
    run = RunFolder(next(folder.glob("runs/ncm-*")))
    DAMAGES["no timing"](run)
    [again] = reproduce(pick(["main"]), scale, folder, say=said.append)
    [from_files] = render(pick(["main"]), folder)
    for done in (again, from_files):
        rows = {row.name: row for row in done.sheet.tables[0].rows}
        assert remedy(run) in rows["NCM"].remark
        assert rows["SLDA"].pairs[0].ours is not None
    assert again.failed
    assert not any("without now" in line for line in said)
    shutil.rmtree(run.path)
    [whole] = reproduce(pick(["main"]), scale, folder)
    assert not whole.missing


@pytest.mark.parametrize("content", ['{"a": 1}', '[{"a": 1}]', "[1]", "{", '[{"runs": []}]'])
def test_a_damaged_list_of_runs_names_its_cure(tmp_path: Path, content: str) -> None:
    (tmp_path / "main").mkdir()
    (tmp_path / "main/runs.json").write_text(content)
    with pytest.raises(ValueError, match=r"runs\.json is damaged: .*reproduce main again, finished runs are reused"):
        render(pick(["main"]), tmp_path)


def test_a_change_is_told_before_what_follows_from_it(micro_vit: str, two_runs: Path) -> None:
    then = json.loads((two_runs / "ncm-seed0/config.json").read_text())
    now = json.loads(json.dumps(then))
    now["dataset"] |= {"labels_sha256": "x", "limit_per_class": 7, "train_images": 1, "classes": 2}
    assert next(iter(changes(then, now))) == "dataset.limit_per_class"
    plan: Plan = small_plan(micro_vit, limit_per_class=then["dataset"]["limit_per_class"] + 1)
    with pytest.raises(ValueError, match=r"dataset\.limit_per_class \d+, requested is \d+"):
        compare([plan], [0], two_runs)


def test_a_file_in_place_of_a_folder_is_told(micro_vit: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="file is a file: choose another --out"):
        compare([small_plan(micro_vit)], [0], file)
    with pytest.raises(ValueError, match="file is a file: choose another --out"):
        make_folder(file / "below")
    with pytest.raises(ValueError, match="file is a file: give the folder of a comparison"):
        read_comparison(file)
    with pytest.raises(OSError, match=r"cannot write to /proc/none .*: see to it, or choose another --out"):
        make_folder(Path("/proc/none"))
    with pytest.raises(FileNotFoundError, match="none does not exist: give what is there"):
        require_folder(tmp_path / "none", "what is there")
    assert start(small_plan(micro_vit), tmp_path / "run").status() == "finished"
