"""A web server that stands in for a model hub: repositories in memory, behind the addresses that its clients ask."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

TOKEN = "hf_goodtoken"
Files = dict[str, bytes]


@dataclass
class Repository:
    """Commits by their hash, and branches that name one each."""

    private: bool = False
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.commit("main", {})

    def commit(self, branch: str, changed: Files) -> str:
        files = self.commits.get(self.branches.get(branch, ""), {}) | changed
        content = f"{len(self.commits)} {sorted(files)}".encode()
        oid = hashlib.sha1(content + b"".join(files.values())).hexdigest()
        self.commits[oid], self.branches[branch] = files, oid
        return oid

    def at(self, revision: str) -> str | None:
        return self.branches.get(revision) or (revision if revision in self.commits else None)


@dataclass
class StandInHub:
    """`status` is what everything is answered with in place of the truth, where it is not 0."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    blobs: Files = field(default_factory=dict)
    status: int = 0
    endpoint: str = ""
    requests: list[str] = field(default_factory=list)

    def answer(self, ask: Ask) -> None:
        self.requests.append(f"{ask.method} {ask.path}")
        if self.status:
            ask.reply(self.status, {"error": "as requested"})
            return
        first, *rest = ask.path.strip("/").split("/")
        if first == "blobs":
            self._blob(ask, rest[0])
        elif ask.path == "/api/repos/create":
            self._create(ask)
        elif ask.path == "/api/validate-yaml":
            ask.reply(200, {"errors": [], "warnings": []})
        elif rest[-3:] == ["lfs", "objects", "batch"]:
            self._batch(ask)
        elif first == "api" and rest[0] == "models":
            self._about(ask, "/".join(rest[1:3]), rest[3:])
        elif len(rest) == 4 and rest[1] == "resolve":
            self._file(ask, f"{first}/{rest[0]}", unquote(rest[2]), rest[3])
        else:
            ask.reply(404, {"error": "no such address"})

    def _create(self, ask: Ask) -> None:
        wanted = ask.json()
        name = f"{wanted['organization']}/{wanted['name']}"
        if not ask.allowed():
            ask.reply(401, {"error": "Invalid username or password."})
            return
        known = name in self.repositories
        if not known:
            private = wanted.get("visibility") == "private" or bool(wanted.get("private"))
            self.repositories[name] = Repository(private)
        ask.reply(409 if known else 200, {"url": f"{self.endpoint}/{name}"})

    def _visible(self, ask: Ask, name: str) -> Repository | None:
        found = self.repositories.get(name)
        return None if found is None or (found.private and not ask.allowed()) else found

    def _about(self, ask: Ask, name: str, what: list[str]) -> None:
        found = self._visible(ask, name)
        if found is None:
            ask.reply(
                404 if ask.allowed() else 401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"}
            )
            return
        verb, branch = (what[0], unquote(what[1])) if what else ("revision", "main")
        if verb == "revision":
            self._describe(ask, name, found, found.at(branch))
        elif not ask.allowed():
            ask.reply(403, {"error": "no right to write"})
        elif verb == "branch":
            known = branch in found.branches
            found.branches.setdefault(branch, found.branches["main"])
            ask.reply(409 if known else 200, {})
        elif verb == "preupload":
            modes = [
                {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular"}
                for file in ask.json()["files"]
            ]
            ask.reply(200, {"files": [mode | {"shouldIgnore": False} for mode in modes]})
        elif verb == "commit":
            oid = found.commit(branch, self._sent(ask))
            ask.reply(200, {"commitUrl": f"{self.endpoint}/{name}/commit/{oid}", "commitOid": oid, "success": True})

    def _describe(self, ask: Ask, name: str, found: Repository, oid: str | None) -> None:
        if oid is None:
            ask.reply(404, {"error": "Revision not found"}, {"X-Error-Code": "RevisionNotFound"})
            return
        names = [{"rfilename": path} for path in found.commits[oid]]
        info = {"id": name, "sha": oid, "private": found.private, "siblings": names, "tags": [], "downloads": 0}
        ask.reply(200, info | {"likes": 0})

    def _sent(self, ask: Ask) -> Files:
        """Files of a commit: small ones as they are, large ones by the hash they were stored under before."""
        files: Files = {}
        for line in ask.body.splitlines():
            part = json.loads(line)
            value = part["value"]
            if part["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif part["key"] == "lfsFile":
                files[value["path"]] = self.blobs[value["oid"]]
        return files

    def _batch(self, ask: Ask) -> None:
        objects = [
            one | {"actions": {"upload": {"href": f"{self.endpoint}/blobs/{one['oid']}"}}}
            for one in ask.json()["objects"]
        ]
        ask.reply(200, {"transfer": "basic", "objects": objects})

    def _blob(self, ask: Ask, oid: str) -> None:
        right = hashlib.sha256(ask.body).hexdigest() == oid
        if right:
            self.blobs[oid] = ask.body
        ask.reply(200 if right else 400, {})

    def _file(self, ask: Ask, name: str, revision: str, path: str) -> None:
        found = self._visible(ask, name)
        oid = None if found is None else found.at(revision)
        if found is None or oid is None or path not in found.commits[oid]:
            ask.reply(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        content = found.commits[oid][path]
        headers = {"X-Repo-Commit": oid, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
        ask.reply_bytes(200, content, headers)


class Ask:
    """One request and the way to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self.handler, self.method = handler, handler.command
        self.path = urlsplit(handler.path).path
        self.body = self._read()

    def _read(self) -> bytes:
        if self.handler.headers.get("Transfer-Encoding") != "chunked":
            return self.handler.rfile.read(int(self.handler.headers.get("Content-Length") or 0))
        parts = []
        while length := int(self.handler.rfile.readline(), 16):
            parts.append(self.handler.rfile.read(length))
            self.handler.rfile.readline()
        self.handler.rfile.readline()
        return b"".join(parts)

    def allowed(self) -> bool:
        return self.handler.headers.get("Authorization") == f"Bearer {TOKEN}"

    def json(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.body)
        return content

    def reply(self, status: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self.reply_bytes(status, json.dumps(content).encode(), {"Content-Type": "application/json"} | (headers or {}))

    def reply_bytes(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.handler.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(content))}).items():
            self.handler.send_header(name, value)
        self.handler.end_headers()
        if self.method != "HEAD":
            self.handler.wfile.write(content)


@contextmanager
def serving() -> Iterator[StandInHub]:
    """Runs the hub while the block runs."""
    hub = StandInHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hub.answer(Ask(self))

        do_POST = do_PUT = do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def reached(monkeypatch: pytest.MonkeyPatch, place: Path) -> Iterator[StandInHub]:
    """A hub to which the way is known and a token is there."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    # Read when the client was imported: its other way of sending large files needs servers of its own.
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(place / "no-token"))
    with serving() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server
