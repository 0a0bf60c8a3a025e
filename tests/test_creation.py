"""`prol.create`."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import prol
from golden_files import tiny_vit
from prol.backbones import ViT


@pytest.mark.parametrize("name", ["prol", "ncm", "head_only"])
def test_a_learner_is_made_by_name_on_the_built_in_backbone(name: str) -> None:
    learner = prol.create(name, device="cpu")
    assert learner.name == name
    assert learner.backbone.name == "vit_small_patch16_128.distilled"
    assert learner.classes == []
    assert isinstance(learner, prol.Learner)


def test_an_open_backbone_is_taken_as_it_is(tiny: ViT) -> None:
    assert prol.create("ncm", tiny).backbone is tiny


def test_options_reach_the_method(tiny: ViT) -> None:
    learner = prol.create("prol", tiny, blocks=3, length="4", lr=0.25)
    assert (learner.options.blocks, learner.options.length, learner.options.lr) == (3, 4, 0.25)


@pytest.mark.parametrize(
    ("dtype", "precision"), [(torch.float32, "float32"), (torch.float64, "float64")], ids=["float32", "float64"]
)
def test_a_dtype_names_the_precision(dtype: torch.dtype, precision: str) -> None:
    backbone = prol.create("ncm", "tiny", device="cpu", dtype=dtype).backbone
    assert (backbone.dtype, backbone.precision) == (dtype, precision)


def test_an_open_backbone_and_another_dtype_are_not_silently_mixed(tiny: ViT) -> None:
    """Either the learner works in the dtype asked for, or the contradiction is refused."""
    worked_in = None
    with suppress(ValueError):
        worked_in = prol.create("ncm", tiny, dtype=torch.float32).backbone.dtype
    assert worked_in in (None, torch.float32)


def test_the_seed_draws_the_initial_values(tiny: ViT) -> None:
    def generator(seed: int) -> torch.Tensor:
        return prol.create("prol", tiny, blocks=3, seed=seed).state()[0]["source/generator.weight"]

    assert torch.equal(generator(1), generator(1))
    assert not torch.equal(generator(1), generator(2))


def refused(**arguments: Any) -> str:
    method = arguments.pop("method", "ncm")
    backbone = arguments.pop("backbone", tiny_vit())
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        prol.create(method, backbone, **arguments)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def test_bad_arguments_are_refused_in_one_line_that_says_what_is_allowed() -> None:
    assert "head_only" in refused(method="nonsense")
    assert "distance" in refused(nonsense=3)
    assert "did you mean 'distance'" in refused(distanc="cosine")
    assert "one of cosine, euclidean" in refused(distance="taxi")
    assert "torch.float32" in refused(dtype=torch.float16)
    assert "not known" in refused(backbone="nonsense")
    assert "blocks=4" in refused(method="prol", blocks=5)


def test_a_gpu_asked_for_where_none_is_is_refused() -> None:
    assert "cpu" in refused(backbone="tiny", device=f"cuda:{torch.cuda.device_count()}")


def test_options_are_checked_before_weights_are_opened() -> None:
    assert "unknown option" in refused(backbone="vit_tiny_patch16_224@/nowhere/w.safetensors", nonsense=1)


def test_importing_prol_imports_neither_timm_nor_plots_nor_the_command_line() -> None:
    code = (
        "import prol, sys; print([m for m in ('timm', 'matplotlib', 'typer', 'rich', 'fastapi') if m in sys.modules])"
    )
    env = {"PYTHONPATH": str(Path(prol.__file__).parents[1]), "PATH": ""}
    answer = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
