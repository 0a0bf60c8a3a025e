"""Connections: how many there may be, how long their headers may take, and how much clients can make the server log."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import ssl
import time
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from prol.serve.errors import RequestError
from prol.serve.monitoring import Activity
from prol.serve.settings import Limits
from prol.serve.tls import behind_tls

SPARE_FILES = 64
"""Open files that are needed for other things than connections."""


class Connections:
    """Counts open connections, in all and by address; an IPv6 network of 64 bits counts as one address."""

    def __init__(self, in_all: int, per_address: int) -> None:
        self.in_all, self.per_address = in_all, per_address
        self._open: Counter[str] = Counter()

    def add(self, address: str) -> RequestError | None:
        """Counts a connection; returns why it is refused, if it is."""
        network = _network(address)
        self._open[network] += 1
        if self._open.total() > self.in_all:
            message = "The service has as many connections as it takes: try again in a moment."
            return RequestError(503, "too_many_connections", message, retry_after=1)
        if self._open[network] > self.per_address:
            message = f"There are {self.per_address} connections from your address already: close some of them."
            return RequestError(429, "too_many_connections", message, retry_after=1)
        return None

    def remove(self, address: str) -> None:
        network = _network(address)
        self._open[network] -= 1
        if self._open[network] <= 0:
            del self._open[network]


def _network(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:  # a Unix socket has none
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is None:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def affordable(connections: int) -> int:
    """At most as many connections as files may be open: without a free one none could even be refused."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows, which has no such limit
        return connections
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return connections if limit == resource.RLIM_INFINITY else max(1, min(connections, limit - SPARE_FILES))


def guarded_protocol(limits: Limits, activity: Activity, tls: ssl.SSLContext | None = None) -> type[asyncio.Protocol]:
    """uvicorn's protocol with limits on connections and on the time that headers take, and handshakes before them."""
    connections = Connections(affordable(limits.connections), limits.connections_per_address)

    class Guarded(H11Protocol):
        late: asyncio.TimerHandle | None = None
        """Ends the connection unless a whole request line with its headers has arrived by then."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            refused = connections.add(self.client[0] if self.client else "")
            if refused is None:
                self._wait_for_headers()
            else:
                self._refuse(refused)

        def connection_lost(self, exc: Exception | None) -> None:
            connections.remove(self.client[0] if self.client else "")
            self._stop_waiting()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is None or self.cycle.response_complete:
                self._wait_for_headers()
            else:
                self._stop_waiting()

        def send_400_response(self, msg: str) -> None:
            activity.count_refusal("malformed_http")
            try:
                super().send_400_response(msg)
            except h11.LocalProtocolError:  # the response to the part before has begun already
                self.transport.close()

        def _wait_for_headers(self) -> None:
            if self.late is None and not self.transport.is_closing():
                self.late = self.loop.call_later(limits.header_seconds, self._end_late)

        def _stop_waiting(self) -> None:
            if self.late is not None:
                self.late.cancel()
                self.late = None

        def _end_late(self) -> None:
            message = f"The headers took more than {limits.header_seconds:g} seconds to arrive."
            self._refuse(RequestError(408, "slow_headers", message))

        def _refuse(self, error: RequestError) -> None:
            activity.count_refusal(error.code)
            if self.transport.is_closing():
                return
            body = json.dumps(error.content()).encode()
            headers = {"Content-Type": "application/json", "Content-Length": len(body), "Connection": "close"}
            lines = [f"{name}: {value}\r\n" for name, value in (headers | error.headers).items()]
            start = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
            self.transport.write(f"{start}{''.join(lines)}\r\n".encode() + body)
            self.transport.close()

    def admit(address: str) -> bool:
        refused = connections.add(address)
        if refused is not None:
            activity.count_refusal(refused.code)
        return refused is None

    return Guarded if tls is None else behind_tls(Guarded, tls, limits.header_seconds, admit, connections.remove)


class BoundedLog(logging.Filter):
    """Passes each message a few times per minute: a client decides how many of its requests are malformed.

    What was left out is counted in the next line that passes. Lines have a limited length.
    """

    def __init__(self, lines: int = 10, length: int = 2000, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._lines, self._length, self._clock = lines, length, clock
        self._began = clock()
        self._passed: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if self._clock() - self._began >= 60:
            self._began = self._clock()
            self._passed.clear()
        kind = str(record.msg)[:100]
        self._passed[kind] += 1
        if self._passed[kind] > self._lines:
            self._dropped[kind] += 1
            return False
        dropped = self._dropped.pop(kind, 0)
        text = record.getMessage()
        if dropped or len(text) > self._length:
            more = f" ({dropped} more such lines were left out)" if dropped else ""
            record.msg, record.args = text[: self._length] + more, ()
        return True
