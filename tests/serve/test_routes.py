"""Every route of a server, as a client sees it."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pytest

import prol
from serve.running import Nursery, counts, error, eventually, files, learn, picture, predict, running


def test_prol_serve_prints_where_it_listens_and_ends_with_0(nursery: Nursery, tmp_path: Path, small_vit: str) -> None:
    flags = ("--method", "ncm", "--option", "distance=euclidean", "--backbone", small_vit, "--threads", "1")
    with running(nursery, tmp_path / "new", *flags) as server, server.client() as client:
        assert server.said() == f"serving {tmp_path / 'new'} on {server.url}\n"
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", server.url)
        nothing = predict(client, picture(0))
        assert (nothing["version"], nothing["predictions"][0]["labels"]) == (0, [])
        assert learn(client, [picture(0)], ["cat"]).status_code == 200
        assert server.end(signal.SIGINT) == 0
    learner = prol.load(tmp_path / "new")
    assert (learner.classes, learner.options.distance) == (["cat"], "euclidean")


def test_learning_is_acknowledged_with_a_version_and_shows(client: httpx.Client) -> None:
    before = counts(client)
    answer = learn(client, [picture(1), picture(2), picture(3)], ["cat", "dog", "cat"])
    assert answer.status_code == 200
    version, classes = answer.json()["version"], answer.json()["classes"]
    assert answer.json() == {"learnt": 3, "version": version, "classes": classes, "repeated": False}
    after = counts(client)
    assert {name: after[name] - before.get(name, 0) for name in ("cat", "dog")} == {"cat": 2, "dog": 1}
    assert len(after) == classes
    assert client.get("/classes").json()["version"] == version
    eventually(lambda: predict(client, picture(1))["version"] >= version)
    ranked = predict(client, picture(2))["predictions"][0]["labels"]
    assert ranked[0]["label"] == "dog"
    assert sum(one["probability"] for one in ranked) == pytest.approx(1)
    assert ranked[0]["score"] >= ranked[-1]["score"]


def test_one_label_is_that_of_all_images_and_numbers_are_not_texts(client: httpx.Client) -> None:
    assert learn(client, [picture(4), picture(5)], ["7"], integers="true").json()["learnt"] == 2
    assert learn(client, [picture(6)], ["7"], integers="false").json()["learnt"] == 1
    found = counts(client)
    assert (found[7], found["7"]) == (2, 1)


@pytest.mark.parametrize("name", ["a/merge", "line\nend", "löwe & co?#%", " ", "\x00"])
def test_a_name_may_hold_any_characters(client: httpx.Client, name: str) -> None:
    assert learn(client, [picture(7)], [name]).status_code == 200
    assert counts(client)[name] == 1
    taken = client.patch(f"/classes/{quote(name, safe='')}", json={"label": name})
    assert error(taken) == (409, "name_taken")


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_image_formats_that_are_read(client: httpx.Client, kind: str) -> None:
    assert learn(client, [picture(8, kind=kind)], ["any"]).status_code == 200


def test_top_is_the_number_of_labels(client: httpx.Client) -> None:
    learnt = learn(client, [picture(1), picture(2), picture(3)], ["one", "two", "three"]).json()
    eventually(lambda: predict(client, picture(1))["version"] >= learnt["version"])
    assert len(predict(client, picture(1), top=2)["predictions"][0]["labels"]) == 2
    several = predict(client, picture(1), picture(2), top=1)
    assert [len(one["labels"]) for one in several["predictions"]] == [1, 1]
    assert several["expires_in"] == 600


def test_a_key_makes_a_request_count_once(client: httpx.Client) -> None:
    first = learn(client, [picture(1)], ["once"], key="k1").json()
    again = learn(client, [picture(1)], ["once"], key="k1").json()
    assert again == first | {"repeated": True}
    assert counts(client)["once"] == 1
    other = learn(client, [picture(2)], ["once"], key="k1")
    assert error(other) == (409, "key_reused")
    assert error(learn(client, [picture(1)], ["twice"], key="k1")) == (409, "key_reused")
    assert counts(client)["once"] == 1
    assert "twice" not in counts(client)


def test_late_labels_are_learnt_once_and_count_correct_predictions(client: httpx.Client) -> None:
    learnt = learn(client, [picture(11), picture(12)], ["left", "right"]).json()
    eventually(lambda: predict(client, picture(11))["version"] >= learnt["version"])
    before = client.get("/status").json()["prequential"]
    ids = [one["id"] for one in predict(client, picture(11), picture(12))["predictions"]]
    given = [{"id": ids[0], "label": "left"}, {"id": "nobody", "label": 3}, {"id": ids[1], "label": "left"}]
    answer = client.post("/labels", json={"labels": given}, headers={"Idempotency-Key": "late"})
    assert answer.status_code == 200
    expected = {"learnt": 2, "correct": 1, "unknown_ids": ["nobody"], "repeated": False}
    assert answer.json().items() >= expected.items()
    assert counts(client)["left"] == 3
    again = client.post("/labels", json={"labels": given}, headers={"Idempotency-Key": "late"})
    assert again.json() == answer.json() | {"repeated": True}
    used = client.post("/labels", json={"labels": given})
    assert error(used) == (404, "unknown_ids")
    assert counts(client)["left"] == 3
    after = client.get("/status").json()["prequential"]
    assert (after["answered"] - before["answered"], after["correct"] - before["correct"]) == (2, 1)
    assert after["recent"][-1] == {"images": 2, "accuracy": 0.5}


def test_an_image_is_predicted_again_by_its_id_and_counts_as_it_was_predicted_last(client: httpx.Client) -> None:
    [before] = predict(client, picture(31))["predictions"]
    learnt = learn(client, [picture(31)], ["raven"]).json()
    eventually(lambda: predict(client, picture(0))["version"] >= learnt["version"])
    asked = {"ids": [before["id"], "nobody"]}
    again = client.post("/predict/again", json=asked, params={"top": 1}).json()
    assert (again["version"], again["unknown_ids"]) == (learnt["version"], ["nobody"])
    [one] = again["predictions"]
    assert (one["id"], [best["label"] for best in one["labels"]]) == (before["id"], ["raven"])
    late = client.post("/labels", json={"labels": [{"id": one["id"], "label": "raven"}]}).json()
    assert (late["learnt"], late["correct"]) == (1, 1)
    gone = client.post("/predict/again", json=asked).json()
    assert (gone["predictions"], gone["unknown_ids"]) == ([], asked["ids"])
    assert error(client.post("/predict/again", json={"ids": ["a", "a"]})) == (422, "repeated_id")
    assert error(client.post("/predict/again", json={"ids": list("abcde")})) == (422, "too_many_images")


def test_status_holds_what_the_page_shows(client: httpx.Client) -> None:
    learn(client, [picture(1)], ["status"])
    predict(client, picture(1), picture(2))
    predict(client, picture(1))
    error(client.post("/learn"))
    found = client.get("/status").json()
    assert (found["method"], found["backbone"]) == ("ncm", "vit_tiny_patch16_224")
    assert found["classes"] == len(counts(client))
    assert found["images_learnt"] == sum(counts(client).values())
    assert found["queue"] == {"waiting": 0, "limit": 64}
    assert found["memory"]["samples_kept"] == 0
    assert found["memory"]["statistics_bytes"] > 0
    assert found["memory"]["pending_images"] > 0
    assert found["memory"]["pending_bytes"] > 0
    assert found["throughput"].keys() == {"learn_images_per_second", "predict_images_per_second"}
    assert min(found["throughput"].values()) > 0
    assert found["limits"]["images"] == 4
    kinds = [event["kind"] for event in found["events"]]
    assert kinds[:3] == ["refused", "predicted", "learnt"]
    assert found["events"][1]["text"] == "3 images", "predictions in a row are one event"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["events"][0]["time"])


def test_metrics_are_in_prometheus_format(client: httpx.Client) -> None:
    learn(client, [picture(1)], ["metrics"])
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    sample = re.compile(r'prol_[a-z_]+(\{[a-z]+="[^"]*"(,[a-z]+="[^"]*")*\})? [0-9.e+-]+')
    assert all(line.startswith(("# HELP prol_", "# TYPE prol_")) or sample.fullmatch(line) for line in lines)
    assert f"prol_images_learnt_total {sum(counts(client).values())}" in lines
    assert any(line.startswith('prol_requests_total{method="POST",route="/learn",status="200"}') for line in lines)


def test_it_says_that_it_is_alive_and_ready(client: httpx.Client) -> None:
    assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200


def test_the_page_is_served_and_nothing_else_of_the_package(client: httpx.Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert client.get("/page/index.html").content == page.content
    for name in ("..%2Fapp.py", "%2Fetc%2Fpasswd", "app.py", ""):
        assert error(client.get(f"/page/{name}")) == (404, "not_found")


def test_openapi_lists_all_routes(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    named = {(method, path) for path, methods in paths.items() for method in methods}
    assert named == {
        ("post", "/learn"),
        ("post", "/predict"),
        ("post", "/predict/again"),
        ("post", "/labels"),
        ("get", "/classes"),
        ("delete", "/classes/{name}"),
        ("patch", "/classes/{name}"),
        ("post", "/classes/{name}/merge"),
        ("post", "/undo"),
        ("get", "/export"),
        ("get", "/onnx"),
        ("get", "/status"),
        ("get", "/metrics"),
        ("get", "/healthz"),
        ("get", "/readyz"),
    }


def test_a_saved_learner_can_be_served(nursery: Nursery, small_vit: str, tmp_path: Path) -> None:
    learner = prol.create("ncm", small_vit, device="cpu")
    learner.learn(np.zeros((3, 8, 8, 3), dtype=np.uint8), ["a", "b", "a"])
    learner.save(tmp_path / "saved")
    with running(nursery, tmp_path / "saved") as server, server.client() as client:
        assert counts(client) == {"a": 2, "b": 1}
        assert client.get("/status").json()["images_learnt"] == 3
        assert client.post("/predict", files=files(picture(1))).json()["predictions"][0]["labels"]
