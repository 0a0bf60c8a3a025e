"""Who may do what: tokens, and on a server without them only this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serve.running import Nursery, Server, error, files, learn, picture, predict, running

READS = [
    ("POST", "/predict"),
    ("GET", "/classes"),
    ("GET", "/status"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/no-such-route"),
]
WRITES = [
    ("POST", "/learn"),
    ("POST", "/labels"),
    ("DELETE", "/classes/x"),
    ("PATCH", "/classes/x"),
    ("POST", "/classes/x/merge"),
    ("PUT", "/anything"),
]
OPEN = [("GET", "/"), ("GET", "/page/index.html"), ("GET", "/healthz"), ("GET", "/readyz")]


@pytest.fixture(scope="module")
def guarded(nursery: Nursery, small_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("guarded")
    (place / "read").write_text("reader-token\n")
    flags = ("--method", "ncm", "--backbone", small_vit, "--read-token-file", str(place / "read"))
    with running(nursery, place / "model", *flags, PROL_WRITE_TOKEN="writer-token") as server:
        yield server


def status(server: Server, method: str, path: str, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with server.client(headers=headers) as client:
        return client.request(method, path).status_code


@pytest.mark.parametrize(("method", "path"), READS)
def test_reading_needs_either_token(guarded: Server, method: str, path: str) -> None:
    assert [status(guarded, method, path, token) for token in (None, "wrong", "reader-toke")] == [401] * 3
    assert all(status(guarded, method, path, token) not in (401, 403) for token in ("reader-token", "writer-token"))


@pytest.mark.parametrize(("method", "path"), WRITES)
def test_writing_needs_the_write_token(guarded: Server, method: str, path: str) -> None:
    found = [status(guarded, method, path, token) for token in (None, "wrong", "reader-token")]
    assert found == [401, 401, 403]
    assert status(guarded, method, path, "writer-token") not in (401, 403)


@pytest.mark.parametrize(("method", "path"), OPEN)
def test_the_page_and_health_are_open(guarded: Server, method: str, path: str) -> None:
    assert status(guarded, method, path, None) == 200


def test_other_schemes_are_refused_and_the_response_names_bearer(guarded: Server) -> None:
    with guarded.client(headers={"Authorization": "Basic writer-token"}) as client:
        answer = client.get("/status")
        assert error(answer) == (401, "no_token")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_large_request_without_a_token_gets_401(guarded: Server) -> None:
    with guarded.client() as client:
        assert error(client.post("/learn", files=files(b"x" * 5_000_000))) == (401, "no_token")


def test_with_a_token_the_name_of_the_host_does_not_matter(guarded: Server) -> None:
    headers = {"Authorization": "bearer writer-token", "Host": "models.example.org", "Origin": "https://other.org"}
    with guarded.client(headers=headers) as client:
        assert learn(client, [picture(1)], ["cat"]).status_code == 200
        assert predict(client, picture(1))["predictions"]


def test_openapi_describes_the_tokens(guarded: Server) -> None:
    with guarded.client(headers={"Authorization": "Bearer reader-token"}) as client:
        paths = client.get("/openapi.json").json()["paths"]
    assert paths["/learn"]["post"]["security"] == [{"write": []}]
    assert paths["/predict"]["post"]["security"] == [{"read": []}]


@pytest.mark.parametrize("host", ["evil.example.org", "127.0.0.1.example.org", "10.0.0.1:80", "", "[::1"])
def test_without_tokens_other_names_are_refused(client: httpx.Client, host: str) -> None:
    for path in ("/status", "/", "/healthz"):
        assert error(client.get(path, headers={"Host": host})) == (403, "foreign_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:99", "[::1]:8000", "127.9.9.9"])
def test_without_tokens_names_of_this_machine_are_fine(client: httpx.Client, host: str) -> None:
    assert client.get("/status", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example.org", "null", "http://127.0.0.1:1", "http://[", ""])
def test_without_tokens_pages_of_others_may_not_send_anything(client: httpx.Client, origin: str) -> None:
    answer = client.post("/learn", files=files(picture(1)), data={"labels": "a"}, headers={"Origin": origin})
    assert error(answer) == (403, "foreign_origin")


def test_without_tokens_its_own_page_may(client: httpx.Client) -> None:
    own = str(client.base_url).rstrip("/")
    answer = client.post("/learn", files=files(picture(1)), data={"labels": "a"}, headers={"Origin": own})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--host", "0.0.0.0"), "can be reached from other machines"),
        (("--port", "70000"), "port must be from 0 to 65535"),
        (("--checkpoints", "1"), "checkpoints must be at least 2"),
        (("--queue-size", "0"), "queue must be above 0"),
        (("--queue", "0"), "queue must be above 0"),
        (("--read-token-file", "{empty}"), "holds no token"),
        (("--read-token-file", "{token}", "--write-token-file", "{token}"), "are the same"),
        (("--read-token-file", "{missing}"), "No such file"),
        (("--method", "nonsense"), "nonsense"),
        (("--method", "ncm", "--option", "distance=far"), "distance"),
    ],
)
def test_what_cannot_be_served_is_an_error_of_one_line(
    command, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "token").write_text("secret")
    places = {name: str(tmp_path / name) for name in ("empty", "token", "missing")}
    asked = [flag.format(**places) for flag in flags]
    port = [] if "--port" in asked else ["--port", "0"]
    code, _, err = command("serve", str(tmp_path / "new"), "--device", "cpu", *port, *asked)
    assert code == 2
    assert re.fullmatch(r"prol: [^\n]*\n", err)
    assert said in err
    assert "secret" not in err


def test_the_former_name_of_queue_size_is_hidden(command) -> None:
    code, out, _ = command("serve", "--help")
    assert code == 0
    assert "--queue-size" in out
    assert not re.search(r"--queue\s", out)
