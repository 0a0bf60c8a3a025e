"""Stopping, starting again, and folders that are not as the service left them."""

from __future__ import annotations

import io
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

import prol
from serve.running import (
    Nursery,
    Server,
    counts,
    error,
    eventually,
    files,
    learn,
    picture,
    predict,
    refused_start,
    running,
)


@pytest.fixture
def new(small_vit: str) -> tuple[str, ...]:
    return ("--method", "ncm", "--backbone", small_vit)


def checkpoints(folder: Path) -> list[Path]:
    return sorted((folder / "service").glob("*.safetensors"))


@pytest.mark.slow
def test_what_was_acknowledged_is_there_after_a_stop_and_keys_are_remembered(
    nursery: Nursery, new: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    with running(nursery, folder, *new, "--checkpoints", "3") as server, server.client() as client:
        first = learn(client, [picture(1), picture(2)], ["cat", "dog"], key="k").json()
        assert "another server is running" in refused_start(nursery, folder)
        eventually(lambda: predict(client, picture(1))["version"] >= 1)
        [one] = predict(client, picture(1))["predictions"]
        late = {"labels": [{"id": one["id"], "label": "cat"}, {"id": "none", "label": "dog"}]}
        labelled = client.post("/labels", json=late, headers={"Idempotency-Key": "l"}).json()
        assert server.end() == 0
    learner = prol.load(folder)
    assert dict(zip(learner.classes, learner.class_counts().tolist(), strict=True)) == {"cat": 2, "dog": 1}
    assert len(checkpoints(folder)) == 3
    with running(nursery, folder, "--rate", "6") as server, server.client() as client:
        assert learn(client, [picture(1), picture(2)], ["cat", "dog"], key="k").json() == first | {"repeated": True}
        again = client.post("/labels", json=late, headers={"Idempotency-Key": "l"}).json()
        assert again == labelled | {"repeated": True}
        assert counts(client) == {"cat": 2, "dog": 1}
        status = client.get("/status").json()
        assert status["prequential"] == {"answered": 1, "correct": 1, "recent": [{"images": 1, "accuracy": 1.0}]}
        assert status["images_learnt"] == 3
        refused = [answer for answer in (client.get("/classes") for _ in range(20)) if answer.status_code != 200]
        assert refused
        assert error(refused[0]) == (429, "too_often")
        assert refused[0].headers["retry-after"] == "1"
        assert client.get("/healthz").status_code == 200


def test_requests_in_progress_are_finished_at_a_stop(nursery: Nursery, new: tuple[str, ...], tmp_path: Path) -> None:
    folder, acknowledged_one = tmp_path / "model", threading.Event()
    chunk = [picture(number) for number in range(60)]

    def send(client: httpx.Client, number: int) -> int:
        try:
            answer = learn(client, chunk, ["busy"], key=str(number))
        except httpx.TransportError:  # it has closed its door already
            return 0
        if answer.status_code == 200:
            acknowledged_one.set()
            return int(answer.json()["learnt"])
        assert error(answer) == (503, "stopping")
        assert int(answer.headers["retry-after"]) > 0
        return 0

    with running(nursery, folder, *new) as server, server.client() as client, ThreadPoolExecutor(4) as threads:
        sent = [threads.submit(send, client, number) for number in range(12)]
        assert acknowledged_one.wait(60)
        assert server.end() == 0
        acknowledged = sum(one.result() for one in sent)
    learner = prol.load(folder)
    assert acknowledged >= 60
    assert dict(zip(learner.classes, learner.class_counts().tolist(), strict=True)) == {"busy": acknowledged}


@pytest.fixture(scope="module")
def stopped(nursery: Nursery, small_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a service that was killed after learning a cat and a dog, and never wrote its saved learner."""
    folder = tmp_path_factory.mktemp("stopped") / "model"
    flags = ("--method", "ncm", "--backbone", small_vit, "--no-journal")
    with running(nursery, folder, *flags) as server, server.client() as client:
        learn(client, [picture(1)], ["cat"])
        learn(client, [picture(2)], ["dog"])
    return folder


@pytest.fixture
def folder(stopped: Path, tmp_path: Path) -> Path:
    shutil.copytree(stopped, tmp_path / "model")
    return tmp_path / "model"


def served(nursery: Nursery, folder: Path) -> tuple[Server, dict[str, int], int]:
    with running(nursery, folder) as server, server.client() as client:
        return server, counts(client), client.get("/classes").json()["version"]


def test_a_damaged_checkpoint_costs_no_more_than_itself(nursery: Nursery, folder: Path) -> None:
    newest = checkpoints(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    server, found, version = served(nursery, folder)
    assert "is damaged" in server.said()
    assert (found, version) == ({"cat": 1}, 2)


def test_without_any_good_checkpoint_it_does_not_start_from_something_older(nursery: Nursery, folder: Path) -> None:
    for file in checkpoints(folder):
        file.write_bytes(file.read_bytes()[:-1])
    damaged = checkpoints(folder)
    assert "no checkpoint in" in refused_start(nursery, folder)
    assert checkpoints(folder) == damaged
    shutil.rmtree(folder / "service")
    assert served(nursery, folder)[1] == {}  # the saved learner is that of the beginning


def test_a_saved_learner_that_somebody_else_wrote_is_not_overwritten(
    nursery: Nursery, folder: Path, small_vit: str, tmp_path: Path
) -> None:
    other = prol.create("ncm", small_vit, device="cpu")
    other.learn(np.zeros((1, 8, 8, 3), dtype=np.uint8), ["eel"])
    other.save(tmp_path / "other")
    for part in (tmp_path / "other").iterdir():
        shutil.copy(part, folder / part.name)
    said = refused_start(nursery, folder)
    assert f"move {folder / 'service'} away" in said
    assert f"move {folder / 'meta.json'} away" in said
    shutil.copytree(folder, tmp_path / "second")
    shutil.move(folder / "service", tmp_path / "away")
    assert served(nursery, folder)[1] == {"eel": 1}
    (tmp_path / "second" / "meta.json").unlink()
    with running(nursery, tmp_path / "second") as server, server.client() as client:
        assert counts(client) == {"cat": 1, "dog": 1}
        assert server.end() == 0
    assert prol.load(tmp_path / "second").classes == ["cat", "dog"]


def test_folders_that_cannot_be_served(nursery: Nursery, folder: Path, tmp_path: Path) -> None:
    assert "leave them out" in refused_start(nursery, folder, "--method", "slda")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_bytes(b"")
    assert "holds cat.jpg and no saved learner" in refused_start(nursery, tmp_path / "photos")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "README.md").write_text("years of work")
    assert "holds README.md and no saved learner" in refused_start(nursery, tmp_path / "thesis")
    assert [part.name for part in (tmp_path / "photos").iterdir()] == ["cat.jpg"]
    (tmp_path / "file").write_bytes(b"")
    assert "is a file" in refused_start(nursery, tmp_path / "file")
    with running(nursery, folder) as server:
        port = server.url.rpartition(":")[2]
        output = refused_start(nursery, tmp_path / "elsewhere", "--port", port)
        assert f"cannot listen on 127.0.0.1 port {port}" in output


def test_predictions_use_what_was_learnt_before(nursery: Nursery, folder: Path) -> None:
    with running(nursery, folder) as server, server.client() as client:
        answer = client.post("/predict", files=files(picture(1), picture(2)), params={"top": 1}).json()
        assert answer["version"] == 2
        assert [one["labels"][0]["label"] for one in answer["predictions"]] == ["cat", "dog"]


def test_probabilities_and_unknown_are_those_of_the_learner_before_and_after_a_restart(
    nursery: Nursery, new: tuple[str, ...], tmp_path: Path
) -> None:
    folder, asked = tmp_path / "model", [picture(1), picture(900, size=8)]
    with running(nursery, folder, *new) as server, server.client() as client:
        assert predict(client, *asked)["predictions"][0]["unknown"] is None
        for start in range(0, 40, 10):
            images = [picture(number) for number in range(start, start + 10)]
            learnt = learn(client, images, ["cat", "dog"] * 5).json()
        eventually(lambda: predict(client, asked[0])["version"] >= learnt["version"])
        before = predict(client, *asked)["predictions"]
        assert server.end() == 0
    with running(nursery, folder) as server, server.client() as client:
        after = predict(client, *asked)["predictions"]
    found = prol.load(folder).classify([np.asarray(Image.open(io.BytesIO(image))) for image in asked])
    assert found.unknown is not None
    for answers in (before, after):
        assert [one["unknown"] for one in answers] == pytest.approx(found.unknown.tolist(), abs=1e-6)
        likely = [one["labels"][0]["probability"] for one in answers]
        assert likely == pytest.approx(found.probabilities.amax(1).tolist(), abs=1e-6)
