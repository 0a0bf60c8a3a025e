"""Python examples that are no transcripts are run too, where what they speak of is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed
from PIL import Image

import prol
import prol.distributed
from docs.pages import DOCS, Block, blocks, pages
from docs.shell import lay_out_images
from integrations.small_learners import taught
from integrations.stand_in_hub import reached
from prol.integrations.onnx import export_onnx

ELSEWHERE = {"extending", "harnesses"}
"""Pages whose examples have a test of their own."""
LEFT_BEHIND = {
    "backbones": [],
    "check": [],
    "merging": [],
    "sharing": ["pets/hub.json"],
    "sweep": ["runs/mine/sweep.csv"],
    "trackers": ["runs/head_only-digits-seed0/result.json", "runs/ncm-digits-seed0/result.json"],
}


def examples(page: Path) -> list[Block]:
    """Doctest runs those with prompts."""
    return [block for block in blocks(page) if block.kind == "python" and ">>>" not in block.text]


def test_every_page_with_python_is_run() -> None:
    assert {page.stem for page in pages() if examples(page)} == ELSEWHERE | LEFT_BEHIND.keys()


@contextmanager
def one_process(place: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{place / 'meeting'}", rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


@pytest.fixture
def around(stem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names and files that a page speaks of, in a folder to which it may write."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    meanwhile: Any = nullcontext()
    if stem == "sharing":
        learner, image = prol.create("ncm", "tiny", device="cpu"), np.zeros((20, 30, 3), np.uint8)
        learner.learn([image], ["cat"])
        learner.save("my-model")
        export_onnx(learner, "my-model.onnx")
        Image.fromarray(image).save("photo.jpg")
        meanwhile = reached(monkeypatch, tmp_path)
    elif stem == "check":
        lay_out_images(tmp_path)
    elif stem == "merging":
        learner = taught("ncm")
        names |= {"prol": prol, "learner": learner, "before": learner.clone()}
        meanwhile = one_process(tmp_path)
    with meanwhile:
        yield names


@pytest.mark.parametrize("stem", LEFT_BEHIND)
def test_the_python_examples_of_a_page_run(stem: str, around: dict[str, Any], tmp_path: Path) -> None:
    for block in examples(DOCS / f"{stem}.md"):
        exec(compile(block.text, block.place, "exec"), around)
    assert [name for name in LEFT_BEHIND[stem] if not (tmp_path / name).is_file()] == []
