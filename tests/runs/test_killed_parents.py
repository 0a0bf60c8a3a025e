"""Processes of an experiment that was killed: they must not work on unseen, in folders that somebody may want."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from prol.runs import RunFolder
from runs.small_runs import environment
from serve.page_browser import until

FLAGS = ("--seeds", "0,1", "--tasks", "1", "--chunk", "1", "--device", "cpu", "--threads", "1", "--jobs", "2")


def is_free(run: RunFolder) -> bool:
    try:
        with run.locked():
            return True
    except ValueError:
        return False


@pytest.mark.slow
def test_runs_side_by_side_end_with_the_process_that_began_them(tmp_path: Path, micro_vit: str) -> None:
    """By themselves they would work on for long: one task of all digits, one image a chunk, without a word."""
    command = [sys.executable, "-m", "prol", "sweep", "prol", "digits", "--backbone", micro_vit, *FLAGS]
    parent = subprocess.Popen([*command, "--out", str(tmp_path)], env=environment(), stdout=subprocess.DEVNULL)

    def both() -> list[RunFolder]:
        runs = [RunFolder(path.parent) for path in tmp_path.glob("*/config.json")]
        return runs if len(runs) == 2 else []

    try:
        runs = until(both, "two runs have begun", 120)
        assert [is_free(run) for run in runs] == [False, False]
    finally:
        parent.kill()
        parent.wait()
    until(lambda: all(is_free(run) for run in runs), "the folders of both runs are free", 10)
    assert [run.status() for run in runs] == ["unfinished", "unfinished"]
