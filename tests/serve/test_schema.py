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
        program = "import schemathesis.cli, sys; sys.exit(schemathesis.cli.schemathesis())"
        arguments = ["run", f"{server.url}/openapi.json", "--checks", CHECKS, "--max-examples", str(examples)]
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments, "--phases", phases, "--seed", "1", "--no-color", *ELSEWHERE],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
        assert "Tested: 14" in done.stdout
        with server.client() as client:
            assert client.get("/healthz").status_code == 200
