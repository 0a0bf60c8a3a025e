"""The learner as a file to download."""

from __future__ import annotations

import io
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

import prol
from prol.serve.errors import RequestError
from prol.serve.exports import ONNX_PACKAGES, require_onnx
from serve.running import Nursery, Server, error, eventually, learn, picture, running

TOKENS = {"PROL_READ_TOKEN": "only-for-reading-0123456789", "PROL_WRITE_TOKEN": "also-for-writing-0123456789"}


def stored(server: Server) -> set[str]:
    """Names in the service's folder but those of checkpoints, journals and locks."""
    names = {part.name for part in (server.folder / "service").iterdir()}
    return {name for name in names if not name.endswith((".safetensors", ".journal", ".lock"))}


def test_an_archive_holds_the_committed_learner_and_nothing_of_it_stays(client: httpx.Client, server: Server) -> None:
    assert learn(client, [picture(1), picture(2)], ["cat", "dog"]).status_code == 200
    before = stored(server)
    response = client.get("/export")
    assert response.status_code == 200, response.text
    version = client.get("/status").json()["version"]
    assert response.headers["content-disposition"] == f'attachment; filename="model-{version}.zip"'
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        archive.extractall(server.folder.parent / "unpacked")
    learner = prol.load(server.folder.parent / "unpacked" / "model", device="cpu")
    assert learner.classes == [one["label"] for one in client.get("/classes").json()["classes"]]
    [image] = [np.asarray(Image.open(io.BytesIO(picture(1))))]
    assert learner.classify([image]).labels == ["cat"]
    assert stored(server) == before == set()
    assert ("exported", f"model-{version}.zip") in [
        (one["kind"], one["text"]) for one in client.get("/status").json()["events"]
    ]


def test_what_a_killed_export_left_is_removed_and_reading_suffices(
    nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    with running(nursery, tmp_path / "model", "--method", "ncm", "--backbone", small_vit) as server:
        assert server.end() == 0
    left = tmp_path / "model" / "service" / "exported" / "model"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half of it")
    with running(nursery, tmp_path / "model", **TOKENS) as server, server.client() as client:
        assert stored(server) == set()
        assert error(client.get("/export")) == (401, "no_token")
        reading = {"Authorization": f"Bearer {TOKENS['PROL_READ_TOKEN']}"}
        assert client.get("/export", headers=reading).status_code == 200
        assert error(client.get("/onnx", headers=reading)) == (409, "nothing_learnt")


@pytest.mark.parametrize("missing", ONNX_PACKAGES)
def test_without_the_extra_onnx_is_refused_with_what_to_install(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(RequestError, match=rf"Without {missing} .*'prol\[onnx\]'") as refused:
        require_onnx()
    assert refused.value.status == 501


def test_a_server_that_stops_ends_an_export(nursery: Nursery, small_vit: str, tmp_path: Path) -> None:
    with running(nursery, tmp_path / "model", "--method", "ncm", "--backbone", small_vit) as server:
        with server.client() as client, ThreadPoolExecutor(1) as beside:
            assert learn(client, [picture(1), picture(2)], ["cat", "dog"]).status_code == 200
            exporting = beside.submit(client.get, "/onnx")
            eventually(lambda: "exported" in stored(server))
            assert error(client.get("/export")) == (429, "export_running")
            assert server.end() == 0
            assert error(exporting.result()) == (503, "stopping")
        assert stored(server) == set()


@pytest.mark.slow
def test_an_onnx_model_predicts_as_the_service(client: httpx.Client, server: Server, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    assert learn(client, [picture(1), picture(2)], ["cat", "dog"]).status_code == 200
    response = client.get("/onnx", timeout=300)
    assert response.status_code == 200, response.text
    (tmp_path / "model.onnx").write_bytes(response.content)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    image = np.asarray(Image.open(io.BytesIO(picture(2))))[None]
    scores = session.run(["scores"], {session.get_inputs()[0].name: image})[0]
    listed = [one["label"] for one in client.get("/classes").json()["classes"]]
    assert listed[int(scores[0].argmax())] == "dog"
    assert stored(server) == set()
