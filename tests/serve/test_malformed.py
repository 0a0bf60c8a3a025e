"""Over a thousand malformed requests: each is refused with a message, and nothing else happens."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from serve.malformed import Request, corpus
from serve.running import Server


def sent(address: str, request: Request) -> tuple[int, bytes]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    try:
        connection.putrequest(request.method, request.path, skip_accept_encoding=True)
        for name, value in request.headers.items():
            connection.putheader(name, value.encode())
        connection.putheader("Content-Length", str(len(request.body)))
        connection.endheaders()
        connection.send(request.body)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def memory(process: int) -> int:
    """Bytes that a process has in memory now."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * 4096


def _classes(server: Server) -> dict[str, int]:
    listed = json.loads(sent(server.url, Request("", "GET", "/classes"))[1])["classes"]
    return {one["label"]: one["count"] for one in listed}


@pytest.mark.parametrize("every", [10, pytest.param(1, marks=pytest.mark.slow)])
def test_malformed_requests_are_refused_with_a_message(server: Server, every: int) -> None:
    requests, before, learnt = corpus()[::every], memory(server.pid), 0
    assert len(requests) > 1000 / every
    already = _classes(server).get("fuzzed", 0)
    for request in requests:
        status, body = sent(server.url, request)
        if status == 200:
            assert request.may_succeed, request.name
            learnt += request.path == "/learn"
            continue
        assert 400 <= status < 500, (request.name, status, body[:200])
        error = json.loads(body)["error"]
        assert error["code"].replace("_", "").isalpha(), request.name
        assert error["message"].strip().endswith((".", "?")), (request.name, error)
    assert sent(server.url, Request("", "GET", "/healthz"))[0] == 200
    assert _classes(server) == ({"fuzzed": already + learnt} if already + learnt else {})
    assert memory(server.pid) - before < 300e6
