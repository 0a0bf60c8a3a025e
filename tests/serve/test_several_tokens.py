"""Who may do what with which of several learners."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import prol
from serve.running import Nursery, Server, error, eventually, learn, picture, refused_start, running
from serve.test_several import create, listed, of

READS = [("GET", "/classes"), ("POST", "/predict"), ("GET", "/status"), ("GET", "/export"), ("GET", "/metrics")]
WRITES = [("POST", "/learn"), ("DELETE", "/classes/x"), ("POST", "/undo"), ("PUT", "/anything")]
MANAGES = [("GET", "/v1"), ("POST", "/v1"), ("PATCH", "/v1/a"), ("DELETE", "/v1/a"), ("GET", "/metrics")]


@pytest.fixture(scope="module")
def guarded(nursery: Nursery, small_vit: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("guarded")
    (place / "admin").write_text("administrator\n")
    flags = ("--several", "--backbone", small_vit, "--admin-token-file", str(place / "admin"))
    with running(nursery, place / "learners", *flags) as server:
        yield server


@pytest.fixture(scope="module")
def tokens(guarded: Server) -> dict[str, dict[str, Any]]:
    with administrator(guarded) as client:
        return {name: create(client, name) for name in ("a", "b")}


def administrator(server: Server) -> httpx.Client:
    return server.client(headers={"Authorization": "Bearer administrator"})


def status(server: Server, name: str, token: str | None, method: str, path: str) -> int:
    with of(server, name, token) as client:
        return client.request(method, path).status_code


def test_tokens_of_a_learner_have_the_rights_of_those_of_a_single_one(
    guarded: Server, tokens: dict[str, dict[str, Any]]
) -> None:
    mine, other = tokens["a"], tokens["b"]
    assert len({*mine.values(), *other.values()}) == 6
    for method, path in READS:
        found = [status(guarded, "a", token, method, path) for token in (None, "x", *list(other.values())[1:])]
        assert found == [401] * 4, path
        allowed = (mine["read_token"], mine["write_token"], "administrator")
        assert not {status(guarded, "a", token, method, path) for token in allowed} & {401, 403}
    for method, path in WRITES:
        found = [
            status(guarded, "a", token, method, path) for token in (None, other["write_token"], mine["read_token"])
        ]
        assert found == [401, 401, 403], path
        assert not {status(guarded, "a", token, method, path) for token in (mine["write_token"], "administrator")} & {
            401,
            403,
        }


def test_only_the_administrator_manages_learners(guarded: Server, tokens: dict[str, dict[str, Any]]) -> None:
    for method, path in MANAGES:
        for token in (None, "x", tokens["a"]["write_token"]):
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            with guarded.client(headers=headers) as client:
                assert error(client.request(method, path)) == (401, "no_token")
    with administrator(guarded) as client:
        assert listed(client).keys() == {"a", "b"}


def test_whether_a_learner_exists_is_not_told_to_those_without_its_token(
    guarded: Server, tokens: dict[str, dict[str, Any]]
) -> None:
    for path in ("/", "/page/app.js", "/classes", "/readyz"):
        for token in (None, tokens["a"]["write_token"]):
            with of(guarded, "b", token) as there, of(guarded, "nobody", token) as nowhere:
                one, other = there.get(path), nowhere.get(path)
                assert (one.status_code, one.content) == (other.status_code, other.content)
    with of(guarded, "nobody", "administrator") as client:
        assert error(client.get("/classes")) == (404, "unknown_learner")


def test_requests_without_a_right_load_nothing(nursery: Nursery, small_vit: str, tmp_path: Path) -> None:
    flags = ("--several", "--backbone", small_vit)
    served = running(nursery, tmp_path / "learners", *flags, PROL_ADMIN_TOKEN="administrator")
    with served as server, administrator(server) as client:
        made = create(client, "quiet")
        for path in ("/classes", "/", "/page/style.css", "/healthz", "/readyz"):
            status(server, "quiet", None, "GET", path)
        assert not listed(client)["quiet"]["loaded"]
        assert status(server, "quiet", made["read_token"], "GET", "/classes") == 200
        assert listed(client)["quiet"]["loaded"]


def test_new_tokens_replace_those_there_were(guarded: Server) -> None:
    with administrator(guarded) as client:
        first = create(client, "renewed")
        second = client.patch("/v1/renewed", json={"tokens": "new"}).json()
        found = [status(guarded, "renewed", one["write_token"], "POST", "/undo") for one in (first, second)]
        assert found == [401, 409]
        assert error(client.patch("/v1/nobody", json={"tokens": "new"})) == (404, "unknown_learner")
        assert error(client.patch("/v1/renewed", json={"tokens": "mine"})) == (422, "invalid")
        assert client.delete("/v1/renewed").status_code == 200
        assert status(guarded, "renewed", second["write_token"], "POST", "/undo") == 401


def test_tokens_are_stored_as_hashes_and_stay_in_effect(nursery: Nursery, small_vit: str, tmp_path: Path) -> None:
    folder = tmp_path / "learners"
    with (
        running(nursery, folder, "--several", "--backbone", small_vit, PROL_ADMIN_TOKEN="administrator") as server,
        administrator(server) as client,
    ):
        made = create(client, "a", limits={"images": 2})
    stored = json.loads((folder / "a" / "access.json").read_text())
    assert made["write_token"] not in json.dumps(stored)
    assert stored["limits"] == {"images": 2}
    saved = prol.create("ncm", small_vit, device="cpu")
    saved.learn(np.zeros((1, 8, 8, 3), dtype=np.uint8), ["cat"])
    saved.save(folder / "copied")
    (folder / "link").symlink_to(folder / "a")
    (folder / "damaged").mkdir()
    (folder / "damaged" / "meta.json").write_text("{}")
    (folder / "damaged" / "access.json").write_text('{"format": 1, "read": "xyz", "write": null, "limits": {}}')
    with running(nursery, folder, "--several") as server:  # without an administrator, on this machine alone
        with of(server, "a") as client:
            assert error(client.get("/classes")) == (401, "no_token")
        with of(server, "a", made["write_token"]) as client:
            assert learn(client, [picture(1)] * 3, ["a"]).status_code == 422
            assert learn(client, [picture(1)] * 2, ["a"]).status_code == 200
        with of(server, "copied") as client:
            assert [one["label"] for one in client.get("/classes").json()["classes"]] == ["cat"]
        with server.client() as client:
            assert listed(client).keys() == {"a", "copied"}
            assert error(client.patch("/v1/a", json={"tokens": "new"})) == (409, "no_tokens")
        assert "damaged is not served" in server.said()
        assert "link is not served" in server.said()


def test_without_tokens_pages_of_others_may_not_use_it(nursery: Nursery, small_vit: str, tmp_path: Path) -> None:
    with running(nursery, tmp_path / "learners", "--several", "--backbone", small_vit) as server:
        with server.client() as client:
            create(client, "a")
            for path in ("/v1", "/v1/a/classes"):
                assert error(client.get(path, headers={"Host": "evil.example"})) == (403, "foreign_host")
            for path in ("/v1", "/v1/a/learn"):
                answer = client.post(path, headers={"Origin": "https://evil.example"})
                assert error(answer) == (403, "foreign_origin")
        assert "another process is running" in refused_start(nursery, tmp_path / "learners", "--several")
        assert eventually(lambda: server.end() == 0)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--method", "ncm"), "learners are created by POST /v1"),
        (("--read-token-file", "read"), "each learner has tokens of its own"),
        (("--host", "0.0.0.0"), "--admin-token-file"),
    ],
)
def test_flags_of_a_single_learner_are_refused(
    nursery: Nursery, tmp_path: Path, flags: tuple[str, ...], said: str
) -> None:
    (tmp_path / "read").write_text("token")
    given = tuple(str(tmp_path / "read") if flag == "read" else flag for flag in flags)
    assert said in refused_start(nursery, tmp_path / "learners", "--several", *given)


def test_a_folder_of_one_learner_is_not_one_of_several_and_the_other_way_round(
    nursery: Nursery, small_vit: str, tmp_path: Path
) -> None:
    prol.create("ncm", small_vit, device="cpu").save(tmp_path / "one")
    assert "leave --several out" in refused_start(nursery, tmp_path / "one", "--several")
    with running(nursery, tmp_path / "learners", "--several", "--backbone", small_vit) as server:
        assert server.end() == 0
    assert "give --several" in refused_start(nursery, tmp_path / "learners")
