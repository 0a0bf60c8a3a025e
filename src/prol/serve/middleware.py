"""The ASGI middleware around the routes: checks access, reads the body within the limits, and counts the request."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prol.serve.errors import RequestError
from prol.serve.monitoring import Activity
from prol.serve.security import AccessControl
from prol.serve.settings import Limits
from prol.serve.uploads import MemoryBudget, Reservation

_METHODS = ("GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS")


class Admission:
    """Admits or refuses a request. An admitted one reaches the routes with its whole body in memory."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: AccessControl,
        limits: Limits,
        budget: MemoryBudget,
        activity: Activity,
        headers: Mapping[str, str],
    ) -> None:
        self.app, self.access, self.limits, self.budget, self.activity = app, access, limits, budget, activity
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 500
        scope["activity"] = self.activity

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        with Reservation(self.budget) as memory:
            try:
                await self._admit(scope, receive, send_with_headers, memory)
            finally:
                route = getattr(scope.get("route"), "path", "other")
                # A client may send any word as a method: unknown ones share one counter.
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self.activity.count_request(method, route, status, time.monotonic() - began)

    async def _admit(self, scope: Scope, receive: Receive, send: Send, memory: Reservation) -> None:
        incoming = _Incoming(receive)
        try:
            self.access.check(scope)
            body = await self._read(scope, incoming, memory)
        except RequestError as error:
            self.activity.count_refusal(error.code)
            await incoming.discard(2 * self.limits.body_bytes, min(5.0, self.limits.body_seconds))
            await JSONResponse(error.content(), error.status, error.headers)(scope, receive, send)
            return
        if not incoming.disconnected:
            await self.app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, incoming: _Incoming, memory: Reservation) -> bytes:
        """The whole body; the limits apply while it arrives."""
        limit = self.limits.body_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(limit)
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while not incoming.ended:
                    pieces.append(await incoming.piece())
                    size += len(pieces[-1])
                    if size > limit:
                        raise _too_large(limit)
                    memory.take(len(pieces[-1]))
        except TimeoutError:
            message = f"The request took more than {self.limits.body_seconds:g} seconds to arrive: send less."
            raise RequestError(408, "too_slow", message) from None
        return b"".join(pieces)


class _Incoming:
    """A body that arrives in pieces, until it has ended or the client has disconnected."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = self.disconnected = False

    async def piece(self) -> bytes:
        message = await self._receive()
        self.disconnected = message["type"] == "http.disconnect"
        self.ended = self.disconnected or not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece

    async def discard(self, limit: int, seconds: float) -> None:
        """Reads and drops the rest: a client that is still sending would never see the response."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.ended and limit > 0:
                    limit -= len(await self.piece())


def _replay(body: bytes, receive: Receive) -> Receive:
    """Delivers the body once, then whatever else the client sends."""
    delivered = False

    async def again() -> Message:
        nonlocal delivered
        if delivered:
            return await receive()
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _too_large(limit: int) -> RequestError:
    return RequestError(413, "too_large", f"The request is larger than {limit:,} bytes: send fewer or smaller images.")
