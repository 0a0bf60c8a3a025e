"""schemathesis sends whatever the OpenAPI schema allows, and much that it does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from serve.running import Nursery, learn, picture, running

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"

ELSEWHERE = ("--exclude-path", "/onnx")
"""It takes a process of its own: see test_exports.py."""


@pytest.mark.parametrize(
    ("phases", "examples"),
    [("fuzzing", 5), pytest.param("examples,coverage,fuzzing,stateful", 150, marks=pytest.mark.slow)],
)
def test_no_request_that_the_schema_allows_is_a_server_error(
    nursery: Nursery, small_vit: str, tmp_path: Path, phases: str, examples: int
) -> None:
    with running(nursery, tmp_path / "model", "--method", "ncm", "--backbone", small_vit) as server:
        with server.client() as client:
            for number, label in enumerate(["a", "b", "0", "null"]):
                assert learn(client, [picture(number)], [label]).status_code == 200
        assert "Tested: 14" in fuzzed(f"{server.url}/openapi.json", tmp_path, phases, examples)
        with server.client() as client:
            assert client.get("/healthz").status_code == 200


@pytest.mark.slow
def test_no_request_to_several_learners_is_a_server_error(nursery: Nursery, small_vit: str, tmp_path: Path) -> None:
    with running(nursery, tmp_path / "learners", "--several", "--backbone", small_vit) as server:
        phases = "examples,coverage,fuzzing,stateful"
        assert "Tested: 7" in fuzzed(f"{server.url}/openapi.json", tmp_path, phases, 30)
        with server.client() as client:
            assert client.post("/v1", json={"name": "mine", "method": "ncm"}).status_code == 201
        assert "Tested: 14" in fuzzed(f"{server.url}/v1/mine/openapi.json", tmp_path, "coverage,fuzzing", 5)
        with server.client() as client:
            assert client.get("/healthz").status_code == 200


def fuzzed(schema: str, folder: Path, phases: str, examples: int) -> str:
    """What schemathesis says when it finds nothing wrong."""
    program = "import schemathesis.cli, sys; sys.exit(schemathesis.cli.schemathesis())"
    arguments = ["run", schema, "--checks", CHECKS, "--max-examples", str(examples), "--phases", phases]
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments, "--seed", "1", "--no-color", *ELSEWHERE],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return done.stdout
