"""Clients that connect too often, send their headers too slowly, or send what is no HTTP."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException, HTTPResponse

import pytest
import uvicorn

from prol.serve.app import create_app
from prol.serve.connections import BoundedLog, Connections, affordable, guarded_protocol
from prol.serve.monitoring import Activity
from prol.serve.security import Tokens
from prol.serve.server import listen
from prol.serve.service import Lifecycle
from prol.serve.settings import Limits
from prol.serve.uploads import MemoryBudget
from serve.running import eventually

CHUNKED = b"POST /x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Serving:
    """A server in a thread, whose learner is still loading."""

    def __init__(self, limits: Limits, tls: ssl.SSLContext | None = None) -> None:
        self.activity, self.listening = Activity(), listen("127.0.0.1", 0)
        app = create_app(Lifecycle(), limits, Tokens(), self.activity, MemoryBudget(limits.memory_bytes))
        protocol = guarded_protocol(limits, self.activity, tls)
        config = uvicorn.Config(app, http=protocol, log_config=None, access_log=False, lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listening]})

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(self.listening.getsockname(), 30, source_address=(source, 0))

    def admits(self, tls: ssl.SSLContext | None = None) -> bool:
        with self.connect() as plain:
            try:
                with plain if tls is None else tls.wrap_socket(plain, server_hostname="localhost") as connection:
                    return healthy(connection)
            except (OSError, HTTPException):  # it was refused before it had sent anything
                return False


@contextmanager
def serving(tls: ssl.SSLContext | None = None, **limits: float) -> Iterator[Serving]:
    here = Serving(Limits(**limits), tls)
    here.thread.start()
    try:
        eventually(lambda: here.server.started)
        yield here
    finally:
        here.server.should_exit = True
        here.thread.join()


def until_closed(connection: socket.socket) -> bytes:
    """All that comes until the other side ends the connection."""
    received = b""
    while piece := connection.recv(65536):
        received += piece
    return received


def refusal(received: bytes) -> tuple[int, str]:
    head, _, body = received.rpartition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def healthy(connection: socket.socket) -> bool:
    connection.sendall(HEALTH)
    response = HTTPResponse(connection)
    response.begin()
    response.read()
    return response.status == 200


def test_headers_that_do_not_arrive_in_time_end_the_connection() -> None:
    with serving(header_seconds=0.3) as here, ExitStack() as stack:
        silent, half, second = (stack.enter_context(here.connect()) for _ in range(3))
        half.sendall(HEALTH[:20])
        assert healthy(second)
        second.sendall(HEALTH[:20])
        for connection in (silent, half, second):
            assert refusal(until_closed(connection)) == (408, "slow_headers")
        assert here.activity.refused["slow_headers"] == 3


def test_one_byte_after_the_other_gains_no_time() -> None:
    with serving(header_seconds=0.3) as here, here.connect() as connection:
        connection.settimeout(0.02)
        received = b""
        for _ in range(200):
            try:
                connection.sendall(b"G")
                received += connection.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                break
            if received:
                break
        assert refusal(received) == (408, "slow_headers")


def test_whole_requests_are_served_for_as_long_as_they_come() -> None:
    with serving(header_seconds=0.2) as here, here.connect() as connection:
        assert all(healthy(connection) for _ in range(20))


def test_connections_are_limited_by_address_and_in_all() -> None:
    with serving(connections=5, connections_per_address=3) as here, ExitStack() as stack:
        first = [stack.enter_context(here.connect()) for _ in range(3)]
        assert all(healthy(connection) for connection in first)
        assert refusal(until_closed(stack.enter_context(here.connect()))) == (429, "too_many_connections")
        others = [stack.enter_context(here.connect("127.0.0.2")) for _ in range(2)]
        assert all(healthy(connection) for connection in others)
        assert refusal(until_closed(stack.enter_context(here.connect("127.0.0.3")))) == (503, "too_many_connections")
        first[0].close()

        assert eventually(here.admits)


def test_140_half_sent_requests_starve_nobody() -> None:
    with serving(header_seconds=1.0) as here, ExitStack() as stack:
        for _ in range(140):
            stack.enter_context(here.connect()).sendall(HEALTH[:10])
        with here.connect("127.0.0.2") as other:
            assert healthy(other)

        assert eventually(here.admits)


def test_what_is_no_http_gets_400_and_few_lines_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    logger, bounded = logging.getLogger("uvicorn.error"), BoundedLog()
    logger.addFilter(bounded)
    try:
        with serving() as here:
            for _ in range(40):
                with here.connect() as connection:
                    connection.sendall(b"\x16\x03\x01 no HTTP\r\n\r\n")
                    assert until_closed(connection).startswith(b"HTTP/1.1 400")
            assert here.activity.refused["malformed_http"] == 40
            with here.connect() as connection:  # the response has begun when the nonsense comes
                connection.sendall(CHUNKED + b"nonsense\r\n\r\n")
                until_closed(connection)
            with here.connect() as connection:
                assert healthy(connection)
    finally:
        logger.removeFilter(bounded)
    assert sum("Invalid HTTP request" in record.message for record in caplog.records) == 10
    assert "Traceback" not in caplog.text


def test_the_log_says_what_was_left_out(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    logger = logging.getLogger("prol.test_connections")
    logger.addFilter(BoundedLog(lines=2, length=50, clock=lambda: now[0]))
    for number in range(7):
        logger.error("request %d failed", number)
    logger.error("something else: %s", "x" * 100)
    now[0] = 61.0
    logger.error("request %d failed", 8)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:2] == ["request 0 failed", "request 1 failed"]
    assert lines[2] == "something else: " + "x" * 34
    assert lines[3] == "request 8 failed (5 more such lines were left out)"


def test_a_network_of_ipv6_counts_as_one_address() -> None:
    connections = Connections(in_all=10, per_address=2)
    assert connections.add("2001:db8::1") is None
    assert connections.add("2001:db8::ffff%eth0") is None
    refused = connections.add("2001:db8::2")
    assert refused is not None
    assert refused.status == 429
    assert connections.add("2001:db8:0:1::1") is None
    assert connections.add("::ffff:10.0.0.1") is None
    assert connections.add("10.0.0.1") is None
    connections.remove("2001:db8::1")
    connections.remove("2001:db8::2")
    assert connections.add("2001:db8::9") is None


def test_there_are_no_more_connections_than_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (100, 200))
    assert (affordable(512), affordable(5)) == (36, 5)
