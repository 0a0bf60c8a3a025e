"""A run on the development split, and files from before there was one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_runs import small_plan

from prol.report.comparison import require_same_stream
from prol.runfiles import RunFiles
from prol.runs import RunFolder, resume, start
from prol.runs.setup import set_up


def test_run_learns_a_fifth_and_says_so(micro_vit: str, tmp_path: Path) -> None:
    plan = small_plan(micro_vit, limit_per_class=None, development=True, chunk=100)
    run = start(plan, tmp_path / "run")
    config, result = run.read(run.config), run.read(run.result)
    whole = set_up(replace(plan, development=False)).config
    assert config["dataset"]["development"] is True
    assert config["dataset"]["train_images"] == config["dataset"]["test_images"]
    assert config["dataset"]["train_images"] <= whole["dataset"]["train_images"] // 5
    assert result["metrics"]["faa"] >= 0


def test_run_of_another_format_is_not_taken_up(finished: Callable[[str], Path], tmp_path: Path) -> None:
    run = RunFolder(shutil.copytree(finished("ncm"), tmp_path / "run"))
    run.config.write_text(json.dumps(run.read(run.config) | {"format": 2}))
    run.result.unlink()
    with pytest.raises(ValueError, match="started by another version of prol, whose run format is 2"):
        resume(run.path)


def test_files_without_the_word_count_as_whole_runs(finished: Callable[[str], Path]) -> None:
    run = RunFolder(finished("ncm"))
    config = run.read(run.config)
    older = config | {"dataset": {k: v for k, v in config["dataset"].items() if k != "development"}}
    files = [
        RunFiles(f"ncm-seed{config['seed']}", c, run.read(run.result), run.read(run.timing)) for c in (config, older)
    ]
    require_same_stream(files)
    developed = config | {"dataset": config["dataset"] | {"development": True}}
    with pytest.raises(ValueError, match=r"dataset.development is False in the one and True in the other"):
        require_same_stream([files[0], RunFiles("prol-seed0", developed, files[0].result, files[0].timing)])
