"""Runs and services on a GPU that are killed lose nothing, and what they saved is of use on a CPU. Needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import prol
from prol.data.builtin import glyphs
from runs.kills import kill_and_compare
from serve.running import Nursery
from serve.test_killed_servers import NCM, PROL_PLUS, kill_and_count

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    started = Nursery()
    yield started
    started.close()


@pytest.mark.parametrize("method", ["ncm", "ranpac", "prol_plus", "prol"])
def test_a_killed_run_ends_as_if_it_had_not_been(tmp_path: Path, micro_vit: str, method: str) -> None:
    story = kill_and_compare(tmp_path, micro_vit, method, 2, seed=7, per_class=12, device="cuda")
    assert story.different == []


@pytest.mark.parametrize("flags", [NCM, PROL_PLUS, ("--method", "prol")], ids=["ncm", "prol_plus", "prol"])
def test_a_killed_service_learns_every_acknowledged_chunk_once(
    nursery: Nursery, tmp_path: Path, small_vit: str, flags: tuple[str, ...]
) -> None:
    kill_and_count(nursery, tmp_path / "model", small_vit, 3, "--device=cuda", *flags)


@pytest.mark.parametrize("method", ["ncm", "slda", "prol_plus", "prol"])
def test_what_was_learnt_on_a_gpu_predicts_the_same_on_a_cpu(tmp_path: Path, method: str) -> None:
    data, learner = glyphs(), prol.create(method, "tiny", device="cuda", precision="float32")
    order = np.random.default_rng(0).permutation(np.flatnonzero(data.train.labels < 10))[:200]
    for start in range(0, len(order), 10):
        loaded = data.train.load(order[start : start + 10])
        learner.learn(loaded.images, data.train.labels[loaded.indices].tolist())
    images = data.test.load(np.flatnonzero(data.test.labels < 10)[:50]).images
    learner.save(tmp_path / "learner")
    loaded_again = prol.load(tmp_path / "learner", device="cpu")
    here, there = learner.classify(images), loaded_again.classify(images)
    scores = learner.predict(images).cpu()
    torch.testing.assert_close(scores, loaded_again.predict(images), rtol=2e-3, atol=2e-3 * float(scores.std()))
    torch.testing.assert_close(here.probabilities, there.probabilities, rtol=1e-2, atol=2e-3)
