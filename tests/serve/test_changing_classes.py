"""Renaming, merging and removing classes over the wire."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

import prol
from serve.running import Nursery, Server, counts, error, eventually, learn, picture, predict, running


def teach(client: httpx.Client) -> None:
    pictures = [picture(number) for number in range(4)]
    assert learn(client, pictures, ["cat", "dog", "cat", "cow/bull"]).status_code == 200
    assert learn(client, [picture(9)], ["7"], integers="true").status_code == 200


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    """The same classes for each test."""
    with server.client() as client:
        teach(client)
        yield client
        for label in counts(client):
            place = f"/classes/{quote(str(label), safe='')}"
            assert client.delete(place, params={"integer": isinstance(label, int)}).status_code == 200


def labels_of(client: httpx.Client, image: bytes) -> set[object]:
    return {one["label"] for one in predict(client, image, top=100)["predictions"][0]["labels"]}


def test_a_class_gets_another_name(client: httpx.Client) -> None:
    answer = client.patch("/classes/cow%2Fbull", json={"label": "cattle"})
    assert answer.status_code == 200, answer.text
    assert answer.json() == {"version": client.get("/classes").json()["version"], "label": "cattle"}
    assert counts(client) == {"cat": 2, "dog": 1, "cattle": 1, 7: 1}
    eventually(lambda: labels_of(client, picture(0)) == {"cat", "dog", "cattle", 7})


def test_a_prediction_under_the_old_name_counts_as_one_under_the_new(client: httpx.Client) -> None:
    eventually(lambda: predict(client, picture(3))["predictions"][0]["labels"][0]["label"] == "cow/bull")
    [waiting] = predict(client, picture(3))["predictions"]
    assert client.patch("/classes/cow%2Fbull", json={"label": "cattle"}).status_code == 200
    late = client.post("/labels", json={"labels": [{"id": waiting["id"], "label": "cattle"}]}).json()
    assert (late["learnt"], late["correct"]) == (1, 1)
    assert counts(client)["cattle"] == 2


def test_a_name_that_is_taken_or_unknown_is_refused(client: httpx.Client) -> None:
    assert error(client.patch("/classes/dog", json={"label": "cat"})) == (409, "name_taken")
    assert error(client.patch("/classes/bird", json={"label": "fish"})) == (404, "unknown_class")
    assert error(client.patch("/classes/7", json={"label": "seven"})) == (404, "unknown_class")
    assert client.patch("/classes/7?integer=true", json={"label": 8}).status_code == 200
    assert counts(client) == {"cat": 2, "dog": 1, "cow/bull": 1, 8: 1}


def test_two_classes_become_one(client: httpx.Client) -> None:
    answer = client.post("/classes/dog/merge", json={"into": "cat"})
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"version", "erased", "remains", "exact"}
    assert answer.json()["exact"] is True
    assert counts(client) == {"cat": 3, "cow/bull": 1, 7: 1}
    assert error(client.post("/classes/cat/merge", json={"into": "cat"})) == (422, "same_class")


def test_a_removed_class_is_in_no_file_any_more(client: httpx.Client, server: Server) -> None:
    client.patch("/classes/cow%2Fbull", json={"label": "ox"})  # a name that was recorded, and is to be erased too
    client.patch("/classes/ox", json={"label": "cow/bull"})
    answer = client.delete("/classes/cow%2Fbull")
    assert answer.status_code == 200, answer.text
    assert answer.json()["exact"] is True
    assert answer.json()["erased"]
    assert counts(client) == {"cat": 2, "dog": 1, 7: 1}
    assert error(client.delete("/classes/cow%2Fbull")) == (404, "unknown_class")
    for file in server.folder.rglob("*"):
        assert file.is_dir() or b"cow/bull" not in file.read_bytes().replace(b"\\/", b"/"), file
    assert prol.load(server.folder).classes == ["cat", "dog", 7]


def test_operations_are_recorded_once_and_survive_a_kill(nursery: Nursery, small_vit: str, tmp_path: Path) -> None:
    with running(nursery, tmp_path / "model", "--method", "ncm", "--backbone", small_vit) as server:
        with server.client() as client:
            teach(client)
            client.patch("/classes/dog", json={"label": "hound"})
            client.delete("/classes/cow%2Fbull")
        server.end(signal.SIGKILL)
    with running(nursery, server.folder) as again, again.client() as another:
        assert counts(another) == {"cat": 2, "hound": 1, 7: 1}
        another.delete("/classes/7?integer=true")
        assert again.end() == 0
    lines = [json.loads(line) for line in (server.folder / "operations.jsonl").read_text().splitlines()]
    assert [(line["what"], line["classes"]) for line in lines] == [("renamed", 4), ("removed", 3), ("removed", 2)]
    meta = json.loads((server.folder / "meta.json").read_text())
    assert meta["operations"] == {"renamed": 1, "removed": 2}
