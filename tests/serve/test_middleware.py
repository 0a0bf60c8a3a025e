"""The layer at the entrance by itself: it reads a body to its end, and never beyond."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from prol.serve.middleware import Admission
from prol.serve.monitoring import Activity
from prol.serve.security import AccessControl, Tokens
from prol.serve.service import Lifecycle
from prol.serve.settings import Limits
from prol.serve.uploads import MemoryBudget


class Client:
    """Sends pieces, and nothing more after the last: whoever waits for more waits for ever."""

    def __init__(self, *pieces: bytes, stalls: bool = False) -> None:
        self.pieces, self.stalls = list(pieces), stalls
        self.answers: list[dict[str, Any]] = []

    async def receive(self) -> dict[str, Any]:
        if not self.pieces:
            assert self.stalls, "asked for more after the end"
            await asyncio.Event().wait()
        piece = self.pieces.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self.pieces) or self.stalls}

    async def send(self, message: dict[str, Any]) -> None:
        self.answers.append(message)


def ask(client: Client, budget: MemoryBudget, **limits: Any) -> tuple[int, Any]:
    """Status and content; a body that gets through comes back as its length."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del scope
        length = len((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(length).encode()})

    access = AccessControl(Lifecycle(), Tokens(), None)
    admission = Admission(
        app, access=access, limits=Limits(**limits), budget=budget, activity=Activity(), headers={"X-Test": "yes"}
    )
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")], "client": ("::1", 1)}
    asyncio.run(admission(scope, client.receive, client.send))
    assert (b"x-test", b"yes") in client.answers[0]["headers"]
    assert budget.taken == 0
    return client.answers[0]["status"], json.loads(client.answers[1]["body"])


def test_a_body_within_the_limits_is_handed_over_whole() -> None:
    assert ask(Client(b"abc", b"", b"de"), MemoryBudget(100), body_bytes=5) == (200, 5)


@pytest.mark.parametrize("pieces", [[b"123456"], [b"12345", b"6"], [b"12", b"345678", b"9"]])
def test_one_byte_too_many_is_too_many(pieces: list[bytes]) -> None:
    status, content = ask(Client(*pieces), MemoryBudget(100), body_bytes=5)
    assert (status, content["error"]["code"]) == (413, "too_large")


def test_who_finds_no_memory_left_is_told_at_once() -> None:
    status, content = ask(Client(b"123", b"45"), MemoryBudget(4), body_bytes=5)
    assert (status, content["error"]["code"]) == (429, "busy")


def test_who_is_too_slow_is_not_waited_for() -> None:
    status, content = ask(Client(b"123", stalls=True), MemoryBudget(100), body_bytes=5, body_seconds=0.05)
    assert (status, content["error"]["code"]) == (408, "too_slow")
