from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prol.backbones import BUILT_INS
from prol.files import write_json
from prol.runs import Plan, RunFolder, start
from prol.runs.inspection import require_planned
from prol.runs.sweep import folder_name
from runs.small_runs import small_plan

FIRST = BUILT_INS[-1]


def test_a_name_holds_what_is_not_as_by_default() -> None:
    plan = Plan("prol", "digits", options={"lr": 0.1}, protocol="blurry", protocol_options={"b": 1, "a": None})
    assert folder_name(plan) == "prol-lr=0.1-digits-protocol=blurry,protocol.a=none,protocol.b=1-seed0"
    assert folder_name(replace(plan, threads=3, device="cpu", data="x", workers=1)) == folder_name(plan)
    assert folder_name(replace(plan, chunk=10)) == folder_name(plan)


def test_long_and_odd_names_end_in_a_hash_of_all_that_is_set() -> None:
    plan = Plan("prol", "digits", backbone="vit@/some/where/weights.safetensors")
    name = folder_name(plan)
    assert name.startswith("prol-digits-backbone=vit__some_where_weights.safetensors-")
    assert name != folder_name(replace(plan, backbone="vit@_some/where/weights.safetensors"))
    long = Plan("prol", "digits", options={f"option{number}": number for number in range(40)}, seed=7)
    assert len(folder_name(long)) < 110
    assert folder_name(long) != folder_name(replace(long, options={**long.options, "option39": 40}))
    assert folder_name(long).endswith("-seed7")


def test_what_a_plan_leaves_open_may_be_settled_by_another_machine(tmp_path: Path, micro_vit: str) -> None:
    plan = small_plan(micro_vit, workers=3)
    run = start(plan, tmp_path / "run")
    for same in (plan, replace(plan, threads=None, workers=None, device="auto", tasks=None, precision="auto")):
        require_planned(same, run)
    for other, says in (
        ({"threads": 2}, "threads 1, requested is 2"),
        ({"chunk": 6}, r"protocol\.chunk 5, requested is 6"),
        ({"limit_per_class": 5}, r"dataset\.limit_per_class 4, requested is 5"),
        ({"options": {"distance": "euclidean"}}, "options"),
        ({"device": "cuda"}, "device 'cpu', requested is 'cuda'"),
        ({"seed": 1}, "seed 0, requested is 1"),
    ):
        with pytest.raises(ValueError, match=says):
            require_planned(replace(plan, **other), RunFolder(run.path))


def test_a_folder_of_the_first_version_is_of_the_network_it_was_run_on(tmp_path: Path) -> None:
    few = {"limit_per_class": 1, "chunk": 10, "tasks": 1}
    run = start(small_plan("vit_tiny_patch8_64.tiny_imagenet", **few), tmp_path / "run")
    write_json(run.config, run.read(run.config) | {"backbone": {"name": "builtin", "sha256": FIRST.sha256}})
    require_planned(small_plan("vit_tiny_patch8_64.tiny_imagenet", **few), run)
    for now in ("builtin", "small"):
        with pytest.raises(
            ValueError, match=r"backbone\.name 'builtin', requested is 'vit_small_patch16_128\.distilled'"
        ):
            require_planned(small_plan(now, **few), run)
