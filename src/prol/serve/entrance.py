"""The ASGI layer around the routes: who gets in, how much they may bring, and a record of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

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
        try:
            self.guard.check(scope)
            body = await self._read(scope, receive, share)
        except Refusal as refusal:
            self.journal.count_refusal(refusal.code)
            # What is on its way is let run out: a client still sending would never see the answer.
            await _discard(receive, self.limits)
            await JSONResponse(refusal.content(), refusal.status, refusal.headers)(scope, receive, send)
            return
        if body is not None:
            await self.app(scope, _replay(body, receive), send)

    async def _read(self, scope: Scope, receive: Receive, share: Share) -> bytes | None:
        """The whole body, counted while it comes; None if the client has gone."""
        most = self.limits.body_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > most:
            raise _too_large(most)
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                pieces, size = [], 0
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return None
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size > most:
                        raise _too_large(most)
                    share.take(len(piece))
                    pieces.append(piece)
                    if not message.get("more_body", False):
                        return b"".join(pieces)
        except TimeoutError:
            message_text = f"The request took more than {self.limits.body_seconds:g} seconds to arrive: send less."
            raise Refusal(408, "too_slow", message_text) from None


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


async def _discard(receive: Receive, limits: Limits) -> None:
    """Reads and forgets what still comes, as far as a body may reach."""
    left = 2 * limits.body_bytes
    try:
        async with asyncio.timeout(min(5.0, limits.body_seconds)):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _too_large(most: int) -> Refusal:
    return Refusal(413, "too_large", f"The request is larger than {most:,} bytes: send fewer or smaller images.")


def _known(method: str) -> str:
    """Methods as they are counted: strangers may send any word."""
    return method if method in ("GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS") else "other"
