"""The ASGI layer around the routes: who gets in, how much they may bring, and a record of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from prol.serve.budget import Budget, Share
from prol.serve.guard import Guard
from prol.serve.journal import Journal
from prol.serve.refusals import Refusal
from prol.serve.settings import Limits


class Entrance:
    """Lets a request in or refuses it, reads its body within the limits, and counts what became of it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        guard: Guard,
        limits: Limits,
        budget: Budget,
        journal: Journal,
        headers: Mapping[str, str],
    ) -> None:
        self.app, self.guard, self.limits, self.budget, self.journal = app, guard, limits, budget, journal
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        share = Share(self.budget)
        try:
            await self._let_in(scope, receive, send_with_headers, share)
        finally:
            share.end()
            route = getattr(scope.get("route"), "path", "other")
            self.journal.count_request(_known(scope["method"]), route, status, time.monotonic() - began)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send, share: Share) -> None:
        incoming = _Incoming(receive)
        try:
            self.guard.check(scope)
            body = await self._read(scope, incoming, share)
        except Refusal as refusal:
            self.journal.count_refusal(refusal.code)
            await incoming.discard(2 * self.limits.body_bytes, min(5.0, self.limits.body_seconds))
            await JSONResponse(refusal.content(), refusal.status, refusal.headers)(scope, receive, send)
            return
        if not incoming.gone:
            await self.app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, incoming: _Incoming, share: Share) -> bytes:
        """The whole body, counted while it comes."""
        most = self.limits.body_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most)
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while not incoming.ended:
                    pieces.append(await incoming.piece())
                    size += len(pieces[-1])
                    if size > most:
                        raise _too_large(most)
                    share.take(len(pieces[-1]))
        except TimeoutError:
            message = f"The request took more than {self.limits.body_seconds:g} seconds to arrive: send less."
            raise Refusal(408, "too_slow", message) from None
        return b"".join(pieces)


class _Incoming:
    """A body that arrives piece by piece, until it has ended or the client has gone."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.ended = self.gone = False

    async def piece(self) -> bytes:
        message = await self._receive()
        self.gone = message["type"] == "http.disconnect"
        self.ended = self.gone or not message.get("more_body", False)
        piece: bytes = message.get("body", b"")
        return piece

    async def discard(self, most: int, seconds: float) -> None:
        """Lets run out what is on its way: a client that is still sending would never see the answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.ended and most > 0:
                    most -= len(await self.piece())


def _replay(body: bytes, receive: Receive) -> Receive:
    """Hands over the body once, then whatever else the client does."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _too_large(most: int) -> Refusal:
    return Refusal(413, "too_large", f"The request is larger than {most:,} bytes: send fewer or smaller images.")


def _known(method: str) -> str:
    """Methods as they are counted: strangers may send any word."""
    return method if method in ("GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS") else "other"
