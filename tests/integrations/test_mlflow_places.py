"""Where MLflow writes: URIs that it knows are left to it, all else is a folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from integrations.read_back import mlflow_numbers
from integrations.test_trackers import Noting
from prol.integrations.trackers import MLflow, _tracking_uri
from prol.runs import start
from runs.small_runs import small_plan


class Workspace(BaseHTTPRequestHandler):
    """As much of Databricks as a run uses."""

    requests: list[str]

    def do_GET(self) -> None:
        self._reply({"experiment": {"experiment_id": "7", "name": "prol"}})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._reply({"run": {"info": {"run_id": "abc", "status": "RUNNING"}}})

    def _reply(self, content: dict[str, Any]) -> None:
        self.requests.append(self.path.partition("?")[0])
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requests to a Databricks workspace on this machine, which MLflow finds."""
    Workspace.requests = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Workspace)
    Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DATABRICKS_HOST", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("DATABRICKS_TOKEN", "secret")
    yield Workspace.requests
    server.shutdown()
    server.server_close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, in which a folder made by mistake is seen."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return place


@pytest.mark.slow
def test_databricks_is_written_to_and_no_folder_of_that_name(
    tmp_path: Path, small_vit: str, here: Path, workspace: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "databricks")
    display = Noting()
    start(small_plan(small_vit), tmp_path / "run", display, [MLflow()])
    assert display.warnings == []
    calls = [path.removeprefix("/api/2.0/mlflow/") for path in workspace if path.startswith("/api/2.0/mlflow/")]
    assert calls[:2] == ["experiments/get-by-name", "runs/create"]
    assert calls.count("runs/log-batch") > 3
    assert calls[-1] == "runs/update"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    "uri",
    ["databricks", "databricks-uc", "uc", "uc:http://127.0.0.1:9", "arn:aws:sagemaker:eu:1:mlflow/x", "http://host:5"],
)
def test_a_uri_that_mlflow_knows_is_left_to_it(uri: str) -> None:
    assert _tracking_uri(uri) == uri


def test_a_uri_that_this_mlflow_does_not_support_is_refused_by_it(tmp_path: Path, small_vit: str, here: Path) -> None:
    display = Noting()
    start(small_plan(small_vit), tmp_path / "run", display, [MLflow("uc:http://127.0.0.1:9")])
    [warning] = display.warnings
    assert warning.startswith("tracking by mlflow has stopped, the run continues without it")
    assert "'uc:http://127.0.0.1:9'" in warning
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("text", ["./databricks", "numbers", "file:numbers", "file:12:30", "12:30", "C:\\numbers"])
def test_all_else_is_a_folder(here: Path, text: str) -> None:
    assert _tracking_uri(text) == (here / text.removeprefix("file:").removeprefix("./")).as_uri()


def test_a_folder_is_written_to(tmp_path: Path, small_vit: str, here: Path) -> None:
    display = Noting()
    start(small_plan(small_vit), tmp_path / "run", display, [MLflow("file:12:30")])
    assert display.warnings == []
    assert len(mlflow_numbers(here / "12:30")["accuracy/average"]) == 3
