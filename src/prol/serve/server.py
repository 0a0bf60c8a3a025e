"""The process: opens the folder, listens, and stops in an orderly way when it is told to."""

from __future__ import annotations

import asyncio
import logging
import socket
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
from prol.serve.budget import Budget
from prol.serve.guard import is_loopback
from prol.serve.journal import Journal
from prol.serve.lifecycle import Lifecycle
from prol.serve.opening import open_service
from prol.serve.service import Service
from prol.serve.settings import Limits, Plan
from prol.serve.store import Store
from prol.serve.tokens import Tokens

LAST_SECONDS = 30
"""For requests in hand when the process is told to stop."""


def serve(folder: Path, plan: Plan, limits: Limits, tokens: Tokens, host: str, port: int) -> None:
    """Serves a folder until SIGTERM or SIGINT. Raises ValueError or OSError where it cannot begin."""
    if not tokens.needed and not is_loopback(host):
        raise ValueError(
            f"{host} can be reached from other machines: set tokens with --write-token-file and --read-token-file "
            "(or PROL_WRITE_TOKEN and PROL_READ_TOKEN), or listen on 127.0.0.1"
        )
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # strangers' broken forms are no news
    store = Store(folder.resolve(), plan.checkpoints)
    with _listen(host, port) as listening:
        try:
            _Server(store, plan, limits, tokens, listening).run_all()
        finally:
            store.release()


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 2**16:
        raise ValueError(f"port must be from 0 to {2**16 - 1}, got {port}")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        raise ValueError(f"cannot listen on {host} port {port}: {error.strerror or error}; choose another") from error
    return listening


class _Server(uvicorn.Server):
    """Answers from the first moment, with 503 until the service is opened, and again when it is stopping."""

    def __init__(self, store: Store, plan: Plan, limits: Limits, tokens: Tokens, listening: socket.socket) -> None:
        self.lifecycle, self.journal, self.budget = Lifecycle(), Journal(), Budget(limits.memory_bytes)
        self.store, self.plan, self.limits, self.listening = store, plan, limits, listening
        self.service: Service | None = None
        self.failure: Exception | None = None
        app = create_app(self.lifecycle, limits, tokens, self.journal, self.budget)
        app.router.lifespan_context = self._lifespan
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=LAST_SECONDS,
            )
        )

    def run_all(self) -> None:
        self.run(sockets=[self.listening])
        if self.failure is not None:
            raise self.failure
        if self.service is not None:
            try:
                self.service.finish()
            except (OSError, ValueError) as error:
                raise OSError(
                    f"the saved learner in {self.store.folder} could not be brought up to date ({error}); nothing is "
                    f"lost: everything that was acknowledged is in {self.store.place}"
                ) from error

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A second signal does not wait for clients any more. The process ends by itself, not by the signal."""
        del sig, frame
        self.force_exit = self.should_exit
        self.lifecycle.is_stopping = self.should_exit = True

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
        print(f"serving {self.store.folder} on http://{place}:{port}", flush=True)

    def _open_service(self) -> Service:
        opened = open_service(self.store, self.plan, _warn)
        return Service(self.store, opened, self.limits, self.budget, self.journal)

    async def _sweep(self) -> None:
        """Lets go of images whose time is over, also when nobody asks."""
        while True:
            await asyncio.sleep(min(5.0, self.limits.pending_seconds))
            if self.service is not None:
                self.service.pending.sweep()


def _warn(text: str) -> None:
    print(f"prol: {text}", file=sys.stderr, flush=True)
