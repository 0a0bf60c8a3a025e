"""TLS: the server's certificate, and handshakes that are counted and limited in time like headers."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any


def tls_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or later, with a certificate (and its chain) and its key, both as PEM files."""

    def no_password() -> str:
        raise ValueError(f"the key in {key} is encrypted: decrypt it into another file, which only you can read")

    for file in (certificate, key):
        if not file.is_file():
            raise ValueError(f"{file} is not there: name a PEM file")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        reason = error.reason or "no PEM"
        raise ValueError(f"{certificate} and {key} are not a certificate and its key: {reason}") from error
    context.set_alpn_protocols(["http/1.1"])
    return context


class _Early(asyncio.Protocol):
    """Receives what a client sends right after the handshake, until the protocol behind it is connected."""

    def __init__(self) -> None:
        self.data, self.lost = b"", False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.lost = True


def behind_tls(
    protocol: Callable[..., asyncio.Protocol],
    context: ssl.SSLContext,
    seconds: float,
    admit: Callable[[str], bool],
    leave: Callable[[str], None],
) -> type[asyncio.Protocol]:
    """A protocol that makes the handshake, within so many seconds, and then leaves the connection to another one.

    asyncio's own TLS tells a protocol of a connection only after its handshake: clients that never finish one would
    be neither counted nor ended. `admit` counts a connection, or refuses it; `leave` ends the counting.
    """

    class Handshake(asyncio.Protocol):
        def __init__(self, **settings: Any) -> None:
            self.behind = protocol(**settings)

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()  # the first bytes are for TLS
            peer = transport.get_extra_info("peername")
            self.task = asyncio.get_running_loop().create_task(self.shake_hands(transport, peer[0] if peer else ""))

        async def shake_hands(self, transport: asyncio.Transport, address: str) -> None:
            early, loop = _Early(), asyncio.get_running_loop()
            secure: asyncio.Transport | None = None
            try:
                if admit(address):
                    secure = await loop.start_tls(
                        transport, early, context, server_side=True, ssl_handshake_timeout=seconds
                    )
            except OSError:  # no TLS, another version of it, too slow, or gone
                pass
            finally:
                leave(address)
                if secure is None:
                    transport.abort()
            if secure is None or early.lost:
                return
            secure.set_protocol(self.behind)
            self.behind.connection_made(secure)
            if early.data:
                self.behind.data_received(early.data)

    return Handshake
