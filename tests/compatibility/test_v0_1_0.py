"""Files that version 0.1.0 wrote open, predict and resume as they did then; tools/write_fixtures.py wrote them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import prol
from compatibility.small_network import open_small_vit
from prol import registry
from prol.learner import Learner
from serve.running import Nursery, counts, eventually, learn, predict, running

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v0_1_0"
ARTIFACTS = sorted(folder.name for folder in (FIXTURES / "artifacts").iterdir())
EXPECTED = load_file(FIXTURES / "expected.safetensors")
CHUNK_LABELS = json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))["chunk_labels"]


def load(name: str) -> Learner:
    """Learners on a ResNet name it; the small ViT has no name that could be opened."""
    folder = FIXTURES / "artifacts" / name
    method = json.loads((folder / "meta.json").read_text(encoding="utf-8"))["method"]
    backbone = None if registry.method(method).from_scratch else open_small_vit(FIXTURES / "small_vit.safetensors")
    return prol.load(folder, backbone, device="cpu")


def test_every_method_has_an_artifact() -> None:
    metas = [json.loads(file.read_text(encoding="utf-8")) for file in FIXTURES.glob("artifacts/*/meta.json")]
    assert len({meta["method"] for meta in metas}) == 25


@pytest.mark.parametrize("name", ARTIFACTS)
def test_a_saved_learner_predicts_and_resumes_as_it_did(name: str) -> None:
    learner, images = load(name), EXPECTED["images"].numpy()
    assert learner.classes == ["ant", 1, "1", "ünï", "bee"]
    torch.testing.assert_close(learner.predict(images), EXPECTED[f"{name}/scores"], rtol=0, atol=1e-6)
    learner.learn(EXPECTED["chunk"].numpy(), CHUNK_LABELS)
    assert learner.classes == ["ant", 1, "1", "ünï", "bee", 7]
    torch.testing.assert_close(learner.predict(images), EXPECTED[f"{name}/resumed"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", ["prol_plus", "prol"])
def test_a_stopped_run_ends_with_the_result_of_one_never_stopped(
    tmp_path: Path, command: Callable[..., Any], method: str
) -> None:
    shutil.copytree(FIXTURES / "runs" / method, tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()
    outcome = command("resume", str(tmp_path / "run"))
    assert outcome.code == 0, outcome.err
    assert "after chunk 4" in outcome.out  # not from the beginning
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    expected = json.loads((FIXTURES / "runs" / f"{method}.json").read_text())
    assert {name: result.get(name) for name in expected} == expected
    scores = prol.load(tmp_path / "run" / "model", device="cpu").predict(EXPECTED["images"].numpy())
    torch.testing.assert_close(
        scores, load_file(FIXTURES / "runs" / f"{method}.safetensors")["scores"], rtol=0, atol=1e-6
    )


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


def test_a_killed_service_finishes_its_work_and_learns_on(tmp_path: Path, nursery: Nursery) -> None:
    folder, expected = tmp_path / "service", json.loads((FIXTURES / "service.json").read_text())
    shutil.copytree(FIXTURES / "service", folder)
    assert prol.load(folder, device="cpu").classes == []
    images = [(FIXTURES / "images" / f"{number}.png").read_bytes() for number in range(8)]
    first, classes = expected["first"], {one["label"]: one["count"] for one in expected["classes"]}
    with running(nursery, folder) as server, server.client() as client:
        assert counts(client) == classes
        # A class was removed just before the kill: the start writes it out of all older files.
        assert prol.load(folder, device="cpu").classes == list(classes)
        assert client.get("/classes").json()["version"] > expected["version"]
        said = predict(client, *images)["predictions"]
        for one, then in zip(said, expected["predictions"], strict=True):
            assert [ranked["label"] for ranked in one["labels"]] == [ranked["label"] for ranked in then]
            for name in ("score", "probability"):
                assert [r[name] for r in one["labels"]] == pytest.approx([r[name] for r in then], rel=1e-3, abs=1e-4)
        status = client.get("/status").json()
        assert {name: status[name] for name in expected["status"]} == expected["status"]
        again = learn(client, [images[number] for number in first["numbers"]], first["labels"], key=first["key"])
        assert again.json() == first["answer"] | {"repeated": True}
        learnt = learn(client, [images[3]], ["fox"]).json()
        assert eventually(lambda: predict(client, images[3])["version"] >= learnt["version"])
        assert predict(client, images[3])["predictions"][0]["labels"][0]["label"] == "fox"
        assert server.end() == 0
    learner = prol.load(folder, device="cpu")
    assert dict(zip(learner.classes, learner.class_counts().tolist(), strict=True)) == classes | {"fox": 1}
