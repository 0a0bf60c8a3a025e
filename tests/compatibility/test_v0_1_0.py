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
from prol.methods.prol_plus.learner import PROLPlus
from serve.running import Nursery, counts, eventually, learn, predict, running

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v0_1_0"
ARTIFACTS = sorted(folder.name for folder in (FIXTURES / "artifacts").iterdir())
EXPECTED = load_file(FIXTURES / "expected.safetensors")
KNOWN = ["ant", 1, "1", "ünï", "bee"]
CHUNK_LABELS = json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))["chunk_labels"]


def read_meta(name: str) -> dict[str, Any]:
    meta: dict[str, Any] = json.loads((FIXTURES / "artifacts" / name / "meta.json").read_text(encoding="utf-8"))
    return meta


def load(name: str) -> Learner:
    """Learners on a ResNet name it; the small ViT has no name that could be opened."""
    scratch = registry.method(read_meta(name)["method"]).from_scratch
    backbone = None if scratch else open_small_vit(FIXTURES / "small_vit.safetensors")
    return prol.load(FIXTURES / "artifacts" / name, backbone, device="cpu")


def test_every_method_has_an_artifact() -> None:
    assert len({read_meta(name)["method"] for name in ARTIFACTS}) == 25


@pytest.mark.parametrize("name", [name for name in ARTIFACTS if not name.startswith("prol_plus")])
def test_a_saved_learner_predicts_and_resumes_as_it_did(name: str) -> None:
    learner, images = load(name), EXPECTED["images"].numpy()
    assert learner.classes == KNOWN
    torch.testing.assert_close(learner.predict(images), EXPECTED[f"{name}/scores"], rtol=0, atol=1e-6)
    learner.learn(EXPECTED["chunk"].numpy(), CHUNK_LABELS)
    assert learner.classes == [*KNOWN, 7]
    torch.testing.assert_close(learner.predict(images), EXPECTED[f"{name}/resumed"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["prol_plus", "prol_plus-untuned"])
def test_a_saved_prol_plus_is_solved_anew_from_its_sums_and_learns_on(name: str, tmp_path: Path) -> None:
    learner, images = load(name), EXPECTED["images"].numpy()
    assert isinstance(learner, PROLPlus)
    assert learner.classes == KNOWN
    assert learner.class_counts().tolist() == [4, 4, 4, 2, 2]
    saved = load_file(FIXTURES / "artifacts" / name / "model.safetensors")
    for part, tensor in learner.moments.tensors().items():
        assert torch.equal(tensor, saved[f"moments/{part}"])
    scores = learner.predict(images)  # one image of each class, and one of the next
    assert scores.shape == (6, 5)
    assert scores.isfinite().all()
    assert scores[:5].argmax(1).tolist() == [0, 1, 2, 3, 4]
    learner.save(tmp_path / "again")
    again = prol.load(tmp_path / "again", open_small_vit(FIXTURES / "small_vit.safetensors"), device="cpu")
    by_old_options = PROLPlus(learner.backbone, PROLPlus.read_options(read_meta(name)["options"]))
    by_old_options.load_state(*learner.state())  # as a run does that was stopped once more
    for one in (again, by_old_options):
        assert torch.equal(one.predict(images), scores)
    for one in (learner, again):
        one.learn(EXPECTED["chunk"].numpy(), CHUNK_LABELS)
    assert learner.classes == [*KNOWN, 7]
    assert torch.equal(again.predict(images), learner.predict(images))
    assert learner.predict(images).argmax(1).tolist() == [0, 1, 2, 3, 4, 5]


def resumed(place: Path, command: Callable[..., Any], method: str) -> dict[str, Any]:
    shutil.copytree(FIXTURES / "runs" / method, place)
    assert not (place / "result.json").exists()
    outcome = command("resume", str(place))
    assert outcome.code == 0, outcome.err
    assert "after chunk 4" in outcome.out  # not from the beginning
    result: dict[str, Any] = json.loads((place / "result.json").read_text())
    return result


def test_a_stopped_run_ends_with_the_result_of_one_never_stopped(tmp_path: Path, command: Callable[..., Any]) -> None:
    result = resumed(tmp_path / "run", command, "prol")
    expected = json.loads((FIXTURES / "runs" / "prol.json").read_text())
    for one in (result, expected):  # probabilities were not calibrated then
        del one["anytime"]["calibration_error"], one["confidence_bins"]
    assert {name: result.get(name) for name in expected} == expected
    scores = prol.load(tmp_path / "run" / "model", device="cpu").predict(EXPECTED["images"].numpy())
    torch.testing.assert_close(scores, load_file(FIXTURES / "runs" / "prol.safetensors")["scores"], rtol=0, atol=1e-6)


def test_a_stopped_run_of_prol_plus_ends_with_the_counts_of_one_never_stopped(
    tmp_path: Path, command: Callable[..., Any]
) -> None:
    """Its scores are solved in another way since."""
    result = resumed(tmp_path / "run", command, "prol_plus")
    expected = json.loads((FIXTURES / "runs" / "prol_plus.json").read_text())
    for name in ("test_sizes", "told"):
        assert result[name] == expected[name]
    assert len(result["accuracy_matrix"]) == 3
    learner = prol.load(tmp_path / "run" / "model", device="cpu")
    assert sorted(learner.classes) == list("0123456789")
    assert learner.class_counts().tolist() == [4] * 10
    assert learner.predict(EXPECTED["images"].numpy()).isfinite().all()


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
        assert len(said) == len(expected["predictions"])
        for one in said:
            assert {ranked["label"] for ranked in one["labels"]} == set(classes)
        learnt_as = {0: "ant", 1: "bee", 2: "lion", 4: "ant", 5: "bee", 6: "lion", 7: "eel"}
        assert {number: said[number]["labels"][0]["label"] for number in learnt_as} == learnt_as
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
