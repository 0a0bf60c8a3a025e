"""Processes that learn shares and reduce them all end with what one process makes of everything."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import prol
from integrations.small_learners import small_vit
from prol.distributed import reduce
from runs.small_runs import environment


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def found(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of so many processes has written; in a third one nothing is learnt."""
    folder, script = tmp_path_factory.mktemp("processes"), Path(__file__).parent / "reduce_in_processes.py"
    command = [sys.executable, str(script)]
    at_work = [
        subprocess.Popen(
            [*command, str(rank), str(request.param), str(folder)],
            env=environment() | {"GLOO_SOCKET_IFNAME": "lo"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(request.param)
    ]
    try:
        said = [process.communicate(timeout=180)[1] for process in at_work]
    finally:
        for process in at_work:
            process.kill()
    assert [process.returncode for process in at_work] == [0] * len(at_work), "\n".join(said)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]


def test_every_process_ends_with_the_whole_the_same_bit_for_bit(found: list[dict[str, Any]]) -> None:
    expected = {"slda", "foal", "prol_plus", "again"} | ({"ncm", "ranpac", "randumb"} if len(found) > 2 else set())
    assert expected <= found[0]["states"].keys()
    for other in found[1:]:
        assert other["states"] == found[0]["states"]


def test_what_one_process_refuses_all_refuse(found: list[dict[str, Any]]) -> None:
    for rank, one in enumerate(found):
        refusals = one["refusals"]
        assert ("process 1 cannot be merged: " in refusals["one trained"]) == (rank != 1)
        assert "head_only cannot be merged: what it learns" in refusals["one trained"]
        assert "they differ in gamma" in refusals["gamma"]
        assert "the base is not the same in every process" in refusals["base here only"]


def test_without_processes_it_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="init_process_group first"):
        reduce(prol.create("ncm", small_vit()))
