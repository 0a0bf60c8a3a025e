"""One engine for many runs: each is set up once, and records how it was asked for and what ran at the same time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paper.reproducing import Recording
from prol.backbones import Backbone, open_backbone
from prol.runs import RunFolder, resume
from prol.runs import setup as set_up_module
from prol.runs.comparison import compare, read_comparison
from prol.runs.display import Silent
from prol.runs.executors import finish, read_finished
from prol.runs.run import config_sha256
from runs.small_runs import contents, small_plan


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The networks that runs have opened."""
    names: list[str] = []

    def counting(name: str, **where: Any) -> Backbone:
        names.append(name)
        return open_backbone(name, **where)

    monkeypatch.setattr(set_up_module, "open_backbone", counting)
    return names


def change(file: Path, **changes: Any) -> None:
    """Sets keys of a JSON file, and removes those that are None."""
    content = {**json.loads(file.read_text()), **changes}
    gone = {name for name, value in changes.items() if value is None}
    file.write_text(json.dumps({name: value for name, value in content.items() if name not in gone}))


def test_each_run_is_set_up_once(opened: list[str], micro_vit: str, tmp_path: Path) -> None:
    plan = small_plan(micro_vit)
    compare([plan], [0, 1], tmp_path)
    assert len(opened) == 2
    (tmp_path / "ncm-seed0/result.json").unlink()
    compare([plan], [0, 1], tmp_path)
    assert len(opened) == 3
    assert finish(plan, tmp_path / "ncm-seed0", Silent()).status() == "finished"
    assert len(opened) == 3


def test_names_in_tables_are_the_options_as_given(finished: Callable[[str], Path], tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(finished("prol"), tmp_path / "some-folder"))
    assert read_finished(run).name == "prol:blocks=2"
    change(run.config, options_given={"widths": "5,2,1", "path": "a/b"})
    assert read_finished(run).name == "prol:path=a/b,widths=5,2,1"
    older = RunFolder(run.path.rename(tmp_path / "prol-blocks=2-seed0"))
    change(older.config, options_given=None)
    assert read_finished(older).name == "prol:blocks=2"


def test_runs_record_whether_others_ran_at_the_same_time(micro_vit: str, tmp_path: Path) -> None:
    plan = small_plan(micro_vit)
    compare([plan], [0], tmp_path, executor=Recording())  # the only one
    compare([plan], [0, 1, 2], tmp_path, executor=Recording())
    recorded = {
        path.name: RunFolder(path).read(path / "config.json")["side_by_side"] for path in tmp_path.glob("ncm-*")
    }
    assert recorded == {"ncm-seed0": False, "ncm-seed1": True, "ncm-seed2": True}
    assert read_comparison(tmp_path).rows[0].side_by_side


def test_a_run_resumed_beside_others_records_it(
    finished: Callable[[str], Path], tmp_path: Path, micro_vit: str
) -> None:
    run = RunFolder(shutil.copytree(finished("ncm"), tmp_path / "run"))
    run.result.unlink()
    finish(replace(small_plan(micro_vit), side_by_side=True), run.path, Silent())
    assert run.read(run.config)["side_by_side"] is True
    assert contents(run.path) == contents(finished("ncm"))


def test_what_cannot_influence_a_result_enters_no_hash(finished: Callable[[str], Path], tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(finished("ncm"), tmp_path / "run"))
    config, result = run.read(run.config), run.read(run.result)
    assert result["config_sha256"] == config_sha256(config)
    assert config_sha256({**config, "load_start": 99.0, "side_by_side": True, "options_given": {}}) == config_sha256(
        config
    )
    assert config_sha256({**config, "seed": 1}) != config_sha256(config)
    run.result.unlink()
    change(run.config, load_start=99.0, options_given=None, side_by_side=None)
    assert resume(run.path).read(run.result) == result


def test_an_executor_with_the_old_name_of_its_verb_still_works(micro_vit: str, tmp_path: Path) -> None:
    class Older:
        def settle(self, pending: Any, hear: Any) -> Any:
            return Recording().execute(pending, hear)

    assert compare([small_plan(micro_vit)], [0], tmp_path, executor=Older()).failures == {}
