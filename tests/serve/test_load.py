"""Overload: which requests are refused, and what is dropped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from serve.running import Nursery, Server, counts, error, eventually, learn, picture, predict, running


@pytest.fixture(scope="module")
def narrow(nursery: Nursery, small_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A queue of one, little memory, and late labels within half a second."""
    folder = tmp_path_factory.mktemp("narrow") / "model"
    flags = ("--queue-size", "1", "--pending-seconds", "0.5", "--pending-images", "3", "--memory-bytes", "16000000")
    with running(nursery, folder, "--method", "ncm", "--backbone", small_vit, *flags) as server:
        yield server


def test_late_labels_come_too_late(narrow: Server) -> None:
    with narrow.client() as client:
        answer = predict(client, picture(1))
        assert answer["expires_in"] == 0.5
        eventually(lambda: client.get("/status").json()["memory"]["pending_images"] == 0)
        late = {"labels": [{"id": answer["predictions"][0]["id"], "label": "cat"}]}
        assert error(client.post("/labels", json=late)) == (404, "unknown_ids")
        assert client.get("/status").json()["memory"]["pending_bytes"] == 0


def test_the_oldest_pending_images_are_dropped(narrow: Server) -> None:
    with narrow.client() as client:
        predict(client, *[picture(seed) for seed in range(8)])
        assert client.get("/status").json()["memory"]["pending_images"] <= 3


def test_a_full_queue_refuses_with_retry_after(narrow: Server) -> None:
    chunk = [picture(seed, 64) for seed in range(150)]
    begin = threading.Barrier(6)

    def send(number: int) -> httpx.Response:
        with narrow.client() as client:
            begin.wait()
            return learn(client, chunk, ["busy"], key=f"busy-{number}")

    with narrow.client() as client, ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(send, range(6)))
        statuses = sorted(answer.status_code for answer in answers)
        assert statuses[0] == 200
        assert statuses[-1] == 429
        for answer in answers:
            if answer.status_code == 429:
                assert error(answer)[1] in ("queue_full", "busy")
                assert int(answer.headers["retry-after"]) >= 1
        assert counts(client)["busy"] == 150 * statuses.count(200)


def test_what_never_fits_into_memory_is_refused_without_retry_after(narrow: Server) -> None:
    with narrow.client() as client:
        answer = client.post("/predict", files=[("images", ("x", picture(1, 2400, "JPEG")))])
        assert error(answer) == (413, "too_large")
        assert "retry-after" not in answer.headers
        assert predict(client, picture(1))["predictions"]
