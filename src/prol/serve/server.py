"""The process: it opens the folder, listens, and stops in an orderly way on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI
from PIL import Image

from prol.serve.app import create_app
from prol.serve.connections import BoundedLog, guarded_protocol
from prol.serve.monitoring import Activity
from prol.serve.security import Tokens, is_loopback
from prol.serve.service import Lifecycle, Service
from prol.serve.settings import Limits, ServeOptions
from prol.serve.store import Store, open_service
from prol.serve.uploads import MemoryBudget

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
) -> None:
    """Serves a folder until SIGTERM or SIGINT. Raises ValueError or OSError if it cannot start."""
    if not tokens.required and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines: set tokens with --write-token-file and --read-token-file "
            "(or PROL_WRITE_TOKEN and PROL_READ_TOKEN), or listen on 127.0.0.1"
        )
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # malformed forms of clients are not worth a line
    store = Store(folder.resolve(), options.checkpoints, options.journal)
    with listen(host, port) as listening:
        try:
            _Server(store, options, limits, tokens, listening, tls).run_all()
        finally:
            store.release()


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


class _Server(uvicorn.Server):
    """Responds from the first moment: with 503 until the service is open, and again while it is stopping."""

    def __init__(
        self,
        store: Store,
        options: ServeOptions,
        limits: Limits,
        tokens: Tokens,
        listening: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.lifecycle, self.activity, self.budget = Lifecycle(), Activity(), MemoryBudget(limits.memory_bytes)
        self.store, self.options, self.limits, self.listening = store, options, limits, listening
        self.scheme = "http" if tls is None else "https"
        self.service: Service | None = None
        self.failure: Exception | None = None
        app = create_app(self.lifecycle, limits, tokens, self.activity, self.budget)
        app.router.lifespan_context = self._lifespan
        config = uvicorn.Config(
            app,
            http=guarded_protocol(limits, self.activity, tls),
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
        """Serves, then finishes the service: the waiting jobs are committed and the saved learner is written."""
        self.run(sockets=[self.listening])
        if self.failure is not None:
            raise self.failure
        if self.service is not None:
            try:
                self.service.finish()
            except (OSError, ValueError) as error:
                raise OSError(
                    f"the saved learner in {self.store.folder} could not be updated ({error}); nothing is "
                    f"lost: everything that was acknowledged is in {self.store.place}"
                ) from error

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal stops waiting for clients. The process ends by itself, not by the signal."""
        del sig, frame
        self.force_exit = self.should_exit
        self.lifecycle.is_stopping = self.should_exit = True
        if self.service is not None:
            self.service.stop_exports()

    @asynccontextmanager
    async def _lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._open()), asyncio.create_task(self._sweep())]
        yield
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _open(self) -> None:
        try:
            self.service = await asyncio.to_thread(self._open_service)
        except Exception as error:
            self.failure, self.should_exit = error, True
            return
        self.service.start()
        self.lifecycle.opened(self.service)
        host, port = self.listening.getsockname()[:2]
        place = f"[{host}]" if ":" in host else host
        print(f"serving {self.store.folder} on {self.scheme}://{place}:{port}", flush=True)

    def _open_service(self) -> Service:
        opened = open_service(self.store, self.options, _warn)
        return Service(self.store, opened, self.limits, self.budget, self.activity)

    async def _sweep(self) -> None:
        """Drops expired images from memory even if no request arrives, and looks after the folder."""
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.limits.pending_seconds))
            if self.service is not None:
                self.service.pending.amounts()
                await asyncio.to_thread(self.service.writer.notice_replacement)


def _warn(text: str) -> None:
    print(f"prol: {text}", file=sys.stderr, flush=True)
