"""The plain reference computes what the product computes."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from golden_files import golden, tiny_vit
from prol.methods.prol.learner import PROL

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-4}
STEPS = 3


def load_script(name: str) -> ModuleType:
    """A file of `benchmarks/`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


plain_prol = load_script("plain_prol")


def options(**changes: Any) -> dict[str, Any]:
    return {
        "augment": "none",
        "blocks": 3,
        "chunk": 5,
        "lr": 0.01,
        "lr_scaling": False,
        "threshold": 1.35,  # crossed on the way, so that the schedule is compared in both of its modes
        "t_max": 2,
        "eta_min": 0.002,
    } | changes


@pytest.mark.parametrize(
    ("dtype", "changes"),
    [
        (torch.float64, {}),
        (torch.float64, {"tune_norms": False}),
        (torch.float64, {"clip": 1.0}),
        (torch.float32, {}),
    ],
    ids=["float64", "frozen norms", "clip", "float32"],
)
def test_both_take_the_same_steps_from_the_same_values(dtype: torch.dtype, changes: dict[str, Any]) -> None:
    learner = PROL(tiny_vit(dtype), PROL.read_options(options(**changes)))
    plain = plain_prol.PlainPROL(tiny_vit(dtype).model, learner.options, classes=8)
    inputs, tolerance = golden("tiny_inputs"), TOLERANCE[dtype]
    modes = set()
    for task in range(2):
        learner.boundary(range(4 * task, 4 * task + 4))
        plain.begin_task(4)
        copy_values(plain, learner, task)
        images, labels = inputs[f"train.{task}.images"], inputs[f"train.{task}.labels"]
        for start in range(0, 5 * STEPS, 5):
            chunk, chunk_labels = images[start : start + 5], labels[start : start + 5]
            learner.learn(chunk, chunk_labels)
            losses = plain.step(channels_first(chunk).to(dtype) / 255, chunk_labels)
            reported = learner.report()
            assert losses == pytest.approx({name: reported[name] for name in losses}, abs=tolerance)
            assert plain.adam.param_groups[0]["lr"] == pytest.approx(reported["lr"])
            modes.add(plain.soft)
        compare_values(plain, learner, task, tolerance)
    assert modes == {False, True}


def channels_first(images: Tensor) -> Tensor:
    return images if images.shape[1] == 3 else images.permute(0, 3, 1, 2)


def values_of(plain: Any, task: int) -> dict[str, Tensor]:
    """The plain program's parameters under the names of the learner's state; class tables as far as classes came."""
    seen = slice(0, 4 * task + 4)
    heads = [(head[1].weight, head[1].bias, head[0].weight, head[0].bias) for head in plain.heads]
    weight, bias, scale, shift = zip(*heads, strict=True)
    return {
        "source/generator.weight": plain.generator_weight,
        "source/generator.bias": plain.generator_bias,
        "source/keys": plain.keys[seen],
        "source/scaler": plain.scaler[seen],
        "source/shifter": plain.shifter[seen],
        "head/weight": torch.cat(weight),
        "head/bias": torch.cat(bias),
        "head/scale": torch.stack(scale),
        "head/shift": torch.stack(shift),
    } | {f"norm/{name}": p for name, p in plain.working.named_parameters() if p.requires_grad}


@torch.no_grad()
def copy_values(plain: Any, learner: PROL, task: int) -> None:
    """Initial values of what is new in a task, from the learner."""
    state = learner.state()[0]
    if task == 0:
        plain.generator_weight.copy_(state["source/generator.weight"])
        plain.generator_bias.copy_(state["source/generator.bias"])
    new = slice(4 * task, 4 * task + 4)
    plain.keys[new] = state["source/keys"][new]
    plain.heads[task][1].weight.copy_(state["head/weight"][new])
    plain.heads[task][1].bias.copy_(state["head/bias"][new])


def compare_values(plain: Any, learner: PROL, task: int, tolerance: float) -> None:
    state, mine = learner.state()[0], values_of(plain, task)
    trained = {name for name in state if not name.startswith(("adam/", "random"))}
    assert mine.keys() == trained
    for name, value in mine.items():
        torch.testing.assert_close(
            state[name], value.detach(), rtol=0, atol=tolerance, msg=lambda t, n=name: f"{n}: {t}"
        )


def test_a_step_begins_with_uint8_images() -> None:
    backbone, resolved = tiny_vit(torch.float32), PROL.read_options(options())
    step = plain_prol.make_step(backbone, resolved, 4, 4)
    images = np.random.default_rng(0).integers(0, 256, (5, 20, 20, 3), dtype=np.uint8)
    losses = step(images, np.array([4, 5, 6, 7, 4]))
    assert losses["total"] == pytest.approx(
        losses["ce"] - losses["sim"] + losses["ort"] + 0.1 * losses["gen"], rel=1e-5
    )
    assert losses["ort"] != 0  # the earlier task's keys are there


def test_other_maths_is_refused() -> None:
    released = dataclasses.replace(PROL.read_options(options()), preset="released")
    with pytest.raises(ValueError, match="preset paper"):
        plain_prol.make_step(tiny_vit(torch.float32), released, 4, 4)


def test_the_interleaved_run_holds_all_three_and_their_ratios(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], small_vit: str
) -> None:
    script = load_script("cpu_step")
    out = tmp_path / "cpu.json"
    arguments = ["--backbone", small_vit, "--chunk", "2", "--rounds", "2", "--steps", "1", "--classes", "6"]
    content = script.main([*arguments, "--out", str(out)])
    assert out.is_file()
    assert json.loads(out.read_text()) == content
    assert [row["rung"] for row in content["rows"]] == ["plain float32", "float32", "bare passes"]
    plain, product, bare = (row["median"] for row in content["rows"])
    assert content["rows"][1]["ratio"] == plain / product
    assert content["times_bare"] == product / bare
    assert "times as long as the bare passes" in capsys.readouterr().out
