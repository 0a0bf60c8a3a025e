"""The process: it opens the folder, listens, and stops in an orderly way on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Protocol

import uvicorn
from PIL import Image
from starlette.types import ASGIApp, Receive, Scope, Send

from prol.serve.app import create_app
from prol.serve.connections import BoundedLog, guarded_protocol
from prol.serve.learners import Learners
from prol.serve.monitoring import Activity
from prol.serve.security import Tokens, is_loopback
from prol.serve.service import Lifecycle, Service
from prol.serve.settings import Limits, ServeOptions
from prol.serve.several import SeveralApp
from prol.serve.store import Store, open_service
from prol.serve.uploads import MemoryBudget
from prol.serve.workers import Workers

SHUTDOWN_SECONDS = 30
"""Time for requests in progress when the process receives a stop signal."""
SWEEP_SECONDS = 5.0
"""Between two looks at what has expired, and at the folder."""


def serve(
    folder: Path,
    options: ServeOptions,
    limits: Limits,
    tokens: Tokens,
    host: str,
    port: int,
    tls: ssl.SSLContext | None = None,
    several: bool = False,
) -> None:
    """Serves a folder, of one learner or of several, until SIGTERM or SIGINT.

    Raises ValueError or OSError if it cannot start.
    """
    if not tokens.required and not is_loopback(host):
        flags = (
            "--admin-token-file (or PROL_ADMIN_TOKEN)"
            if several
            else ("--write-token-file and --read-token-file (or PROL_WRITE_TOKEN and PROL_READ_TOKEN)")
        )
        raise ValueError(f"{host} can be reached from other machines: set tokens with {flags}, or listen on 127.0.0.1")
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # malformed forms of clients are not worth a line
    served: Served
    if several:
        served = learners = Learners(folder.resolve(), options, limits, tokens, _warn)
        app: ASGIApp = SeveralApp(learners)
    else:
        served = one = One(folder.resolve(), options, limits)
        app = create_app(one.lifecycle, limits, tokens, one.activity, one.budget)
    with listen(host, port) as listening:
        try:
            _Server(served, app, limits, listening, tls).run_all()
        finally:
            served.release()


def listen(host: str, port: int) -> socket.socket:
    """A bound TCP socket.

    Its protocol is explicit: asyncio sets TCP_NODELAY only where that is IPPROTO_TCP, and without TCP_NODELAY each
    request on a kept-alive connection waits 40 ms for a delayed acknowledgement.
    """
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be from 0 to {2**16 - 1}, got {port}")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror or error}; choose another") from error
    return listening


class Served(Protocol):
    """What a server serves. It responds from the first moment on, with 503 until it is open."""

    folder: Path
    lifecycle: Lifecycle
    activity: Activity

    def open(self) -> None:
        """Reads what is on the disk; from its end on requests are served."""

    def stop_exports(self) -> None:
        """Ends downloads that are being made: they may take longer than clients are waited for."""

    async def look_after(self) -> None:
        """Called every few seconds: drops what has expired from memory even if no request arrives, and looks after
        the folder."""

    def finish(self) -> None:
        """Commits what waits and writes saved learners. OSError or ValueError says what could not be written."""

    def release(self) -> None:
        """Lets another server have the folder."""


class One:
    """One learner."""

    def __init__(self, folder: Path, options: ServeOptions, limits: Limits) -> None:
        self.folder, self.options, self.limits = folder, options, limits
        self.lifecycle, self.activity, self.budget = Lifecycle(), Activity(), MemoryBudget(limits.memory_bytes)
        self._store = Store(folder, options.checkpoints, options.journal)
        self._service: Service | None = None
        self._workers: Workers | None = None

    def open(self) -> None:
        opened = open_service(self._store, self.options, _warn)
        self._workers = Workers(opened.learner.backbone.device)
        self._service = Service(self._store, opened, self.limits, self.budget, self.activity, self._workers)
        self._service.start()
        self.lifecycle.opened(self._service)

    def stop_exports(self) -> None:
        if self._service is not None:
            self._service.stop_exports()

    async def look_after(self) -> None:
        if self._service is not None:
            self._service.pending.amounts()
            await asyncio.to_thread(self._service.writer.notice_replacement)

    def finish(self) -> None:
        if self._service is None or self._workers is None:
            return
        self._workers.stop()
        try:
            self._service.finish()
        except (OSError, ValueError) as error:
            raise OSError(
                f"the saved learner in {self.folder} could not be updated ({error}); nothing is "
                f"lost: everything that was acknowledged is in {self._store.place}"
            ) from error

    def release(self) -> None:
        self._store.release()


class _Server(uvicorn.Server):
    """Responds from the first moment: with 503 until what it serves is open, and again while it is stopping."""

    def __init__(
        self, served: Served, app: ASGIApp, limits: Limits, listening: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        self.served, self.app, self.limits, self.listening = served, app, limits, listening
        self.scheme = "http" if tls is None else "https"
        self.failure: Exception | None = None
        config = uvicorn.Config(
            self._respond,
            http=guarded_protocol(limits, served.activity, tls),
            interface="asgi3",
            lifespan="on",
            ws="none",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
        for name in ("uvicorn.error", "asyncio", "prol"):  # after Config, which sets up the first one
            logging.getLogger(name).addFilter(BoundedLog())
        super().__init__(config)

    def run_all(self) -> None:
        """Serves, then commits what waits and writes saved learners."""
        self.run(sockets=[self.listening])
        if self.failure is not None:
            raise self.failure
        self.served.finish()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal stops waiting for clients. The process ends by itself, not by the signal."""
        del sig, frame
        self.force_exit = self.should_exit
        self.served.lifecycle.is_stopping = self.should_exit = True
        self.served.stop_exports()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self.app(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        tasks = [asyncio.create_task(self._open()), asyncio.create_task(self._sweep())]
        await send({"type": "lifespan.startup.complete"})
        await receive()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self) -> None:
        try:
            await asyncio.to_thread(self.served.open)
        except Exception as error:
            self.failure, self.should_exit = error, True
            return
        host, port = self.listening.getsockname()[:2]
        place = f"[{host}]" if ":" in host else host
        print(f"serving {self.served.folder} on {self.scheme}://{place}:{port}", flush=True)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.limits.pending_seconds))
            await self.served.look_after()


def _warn(text: str) -> None:
    print(f"prol: {text}", file=sys.stderr, flush=True)
