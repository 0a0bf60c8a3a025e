"""Processes that learn shares and reduce them all end with what one process makes of everything."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import prol
from integrations.small_learners import small_vit
from prol.distributed import reduce
from runs.small_runs import environment
from test_merging import VIT, assert_same, make, teach


@pytest.fixture(scope="module", params=[pytest.param(count, marks=pytest.mark.slow) for count in (2, 3)])
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
    assert {"ncm", "slda", "ranpac", "randumb", "foal", "prol_plus", "again"} <= found[0]["states"].keys()
    for other in found[1:]:
        assert other["states"] == found[0]["states"]


def test_what_one_process_refuses_all_refuse(found: list[dict[str, Any]]) -> None:
    for rank, one in enumerate(found):
        refusals = one["refusals"]
        assert ("process 1 cannot be merged: " in refusals["one trained"]) == (rank != 1)
        assert "head_only cannot be merged: what it learns" in refusals["one trained"]
        assert "they differ in gamma" in refusals["gamma"]
        assert "the base is not the same in every process" in refusals["base here only"]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A group of one process, this one."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("variant", ["slda", "foal"])
def test_one_process_alone_ends_with_what_it_has_learnt(variant: str) -> None:
    base = teach(make(variant), range(8))
    learner, whole = teach(base.clone(), range(8, 20)), teach(make(variant), range(20))
    reduce(learner, base)
    assert_same(learner, whole)


@pytest.mark.usefixtures("alone")
def test_what_cannot_be_merged_is_refused_by_one_process_too() -> None:
    learner = teach(prol.create("head_only", VIT), range(4))
    with pytest.raises(ValueError, match="head_only cannot be merged: what it learns"):
        reduce(learner)


def test_without_processes_it_says_what_to_do() -> None:
    with pytest.raises(ValueError, match="init_process_group first"):
        reduce(prol.create("ncm", small_vit()))
