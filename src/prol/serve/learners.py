"""Several learners over one frozen network, each a service in a folder of its own that is loaded while it is used.

    DIR/learners.json       the network that all of them share
    DIR/NAME/               what `prol serve DIR/NAME` would serve alone
    DIR/NAME/access.json    hashes of the learner's tokens, and its limits

A learner is loaded by the first request for it. Where memory is short, those that were not used for the longest time
are written out and dropped, as when a service stops: whatever they acknowledged was on disk before. The thread of the
event loop does all bookkeeping, and one other thread loads and writes out.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypedDict

from filelock import BaseFileLock

from prol.backbones import open_backbone
from prol.files import require_real_folder, take_lock, write_json
from prol.runfiles import Backbone as SavedBackbone
from prol.runs.format import META_FILE
from prol.runs.loading import open_saved_backbone
from prol.serve.errors import RequestError, not_written
from prol.serve.hosted import (
    ACCESS_FILE,
    FORMAT,
    LEFT_OVER,
    NAME,
    NAME_RULE,
    Hosted,
    Shared,
    build,
    give_memory_back,
    hosted_in,
    new_access,
    trim,
    use_one_arena,
)
from prol.serve.monitoring import Activity
from prol.serve.schemas import NewLearnerBody
from prol.serve.security import Tokens
from prol.serve.service import Lifecycle, Service
from prol.serve.settings import Limits, ServeOptions
from prol.serve.store import SERVICE, SEVERAL_FILE
from prol.serve.uploads import MemoryBudget
from prol.serve.workers import Workers
from prol.typed_json import read_file

LEARNING, SOLVING = 2, 1
"""Batches that are learnt, and snapshots that are made, at a time."""
WAIT_SECONDS = 30.0
"""For memory, while all loaded learners are in use; for the requests in progress before a deletion."""
RETRY_SECONDS = 5.0
"""After which a learner that could not be loaded is tried again."""

_log = logging.getLogger("prol")


class _Index(TypedDict):
    format: int
    backbone: SavedBackbone
    precision: str


class Learners:
    """All learners of a folder."""

    def __init__(
        self, folder: Path, options: ServeOptions, limits: Limits, tokens: Tokens, warn: Callable[[str], None]
    ) -> None:
        self.folder, self.limits, self.tokens = folder, limits, tokens
        self.lifecycle, self.activity, self.budget = Lifecycle(), Activity(), MemoryBudget(limits.memory_bytes)
        self.entries: dict[str, Hosted] = {}
        self.loads = self.written_out = 0
        self.load_seconds = 0.0
        self._killed: list[str] = []
        self._options, self._warn = options, warn
        self._shared: Shared | None = None
        self._lock: BaseFileLock | None = None
        self._changing, self._released = asyncio.Lock(), asyncio.Event()
        """Held while a learner is loaded, written out, created or deleted; set when a request has ended."""
        use_one_arena()
        self._files = ThreadPoolExecutor(1, thread_name_prefix="prol-learners")

    def open(self) -> None:
        """Opens the network, and finds the learners of the folder without loading any."""
        self._require_usable()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(self.folder)
        index = self.folder / SEVERAL_FILE
        if index.exists():
            saved = read_file(index, _Index)
            if saved["format"] != FORMAT:
                raise ValueError(f"{index} has another format than this version of prol reads: use a matching prol")
            backbone = open_saved_backbone(saved, self.folder, self._options.backbone, device=self._options.device)
        else:
            backbone = open_backbone(self._options.backbone or "builtin", device=self._options.device)
            described = {"backbone": {"name": backbone.name, "sha256": backbone.sha256}}
            write_json(index, {"format": FORMAT, **described, "precision": backbone.precision})
        workers = Workers(backbone.device, LEARNING, SOLVING)
        self._shared = Shared(backbone, workers, self.budget, self._options, self.limits, self.tokens.admin, self._warn)
        for place in sorted(self.folder.iterdir()):
            if LEFT_OVER.fullmatch(place.name) and not place.is_symlink():
                shutil.rmtree(place, ignore_errors=True)
            elif place.is_dir() and not place.name.startswith(".") and (found := hosted_in(place, self._shared)):
                self.entries[found.name] = found
                if found.was_in_use():
                    self._killed.append(found.name)
        self.lifecycle.opened(None)

    @property
    def backbone_name(self) -> str:
        return "" if self._shared is None else self._shared.backbone.name.partition("@")[0]

    def find(self, name: str) -> Hosted | None:
        entry = self.entries.get(name)
        return None if entry is None or entry.is_going else entry

    def loaded(self) -> list[Hosted]:
        return [entry for entry in self.entries.values() if entry.service is not None]

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[Service]:
        """The service of a learner, which is loaded if need be and stays so for as long as the context is open."""
        entry = self.find(name)
        if entry is None:
            raise unknown_learner()
        while (service := entry.service) is None or entry.is_leaving:
            async with self._changing:
                await self._load(entry)
        entry.users, entry.used = entry.users + 1, time.monotonic()
        try:
            yield service
        finally:
            entry.users -= 1
            self._released.set()
            self._limit_pending()

    async def create(self, wanted: NewLearnerBody) -> dict[str, Any]:
        """Creates a learner; returns its tokens, of which only hashes are stored. It is on disk then."""
        name = wanted.name
        if NAME.fullmatch(name) is None:
            raise RequestError(422, "bad_name", f"This is no name of a learner: {NAME_RULE}.")
        read, write = _new_tokens() if self.tokens.required else (None, None)
        wanted.limits.require_within(self.limits)
        access = new_access(read, write, wanted.limits.model_dump(exclude_none=True))
        async with self._changing:
            if name in self.entries or (self.folder / name).exists():
                raise RequestError(409, "name_taken", "There is a learner of this name already: choose another one.")
            if len(self.entries) >= self.limits.learners:
                message = f"There are {self.limits.learners} learners already: delete one, or raise --learners."
                raise RequestError(409, "too_many_learners", message)
            try:
                self.entries[name] = await self._in_thread(build, self.folder / name, wanted, access, self._shared)
            except ValueError as error:
                said = " ".join(str(error).split()).rstrip(".")
                raise RequestError(422, "not_created", f"{said[:1].upper()}{said[1:]}.") from error
            except OSError as error:
                raise not_written(error) from error
        return {"name": name, "read_token": read, "write_token": write}

    async def renew_tokens(self, name: str) -> dict[str, Any]:
        """New tokens for a learner; those that it had are worthless from then on."""
        if not self.tokens.required:
            message = "This service has no tokens: give it an administrator's token, --admin-token-file."
            raise RequestError(409, "no_tokens", message)
        read, write = _new_tokens()
        async with self._changing:
            entry = self.find(name)
            if entry is None:
                raise unknown_learner()
            access = new_access(read, write, entry.access["limits"])
            try:
                await self._in_thread(write_json, entry.folder / ACCESS_FILE, access)
            except OSError as error:
                raise not_written(error) from error
            entry.grant(access)
        return {"name": name, "read_token": read, "write_token": write}

    async def delete(self, name: str) -> None:
        """Deletes a learner and all of its files, after the requests for it that are in progress."""
        entry = self.find(name)
        if entry is None:
            raise unknown_learner()
        entry.is_going = True
        try:
            until = time.monotonic() + WAIT_SECONDS
            while entry.users:
                await self._wait_for_release(until)
            async with self._changing:
                await self._in_thread(entry.erase)
        except BaseException as error:
            entry.is_going = False
            if isinstance(error, OSError | ValueError):
                raise not_written(error) from error
            raise
        del self.entries[name]

    async def look_after(self) -> None:
        """Drops expired images, sees to the memory of learners that have grown, and looks at their folders.

        Learners that were loaded when a process was killed are loaded once: that replaces their journals.
        """
        if self.lifecycle.unavailable() is not None:
            return
        for entry in self.entries.values():
            entry.pending.amounts()
        while self._killed:
            with suppress(RequestError):  # it is logged
                async with self.use(self._killed.pop()):
                    pass
        async with self._changing:
            for entry in self.loaded():
                assert entry.service is not None
                await self._in_thread(entry.service.writer.notice_replacement)
                entry.measure()
            if len(self.loaded()) > 1:
                await self._make_room(0, None)
            await self._in_thread(trim)

    def stop_exports(self) -> None:
        for entry in self.loaded():
            if entry.service is not None:
                entry.service.stop_exports()

    def finish(self) -> None:
        """Writes out all learners that are loaded."""
        self._files.shutdown()
        if self._shared is not None:
            self._shared.workers.stop()
        failed = [entry.name for entry in self.loaded() if not entry.close(*entry.take())]
        if failed:
            raise OSError(
                f"saved learners in {self.folder} could not be updated ({', '.join(failed)}); nothing is lost: "
                f"everything that was acknowledged is in their folders {SERVICE}"
            )

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    async def _load(self, entry: Hosted) -> None:
        """`_changing` is held."""
        if entry.is_going or self.entries.get(entry.name) is not entry:
            raise unknown_learner()
        if entry.service is not None:
            return
        if (unavailable := self.lifecycle.unavailable()) is not None:
            raise unavailable
        began = time.monotonic()
        if entry.failed is not None and began < entry.failed + RETRY_SECONDS:
            raise _not_loaded()
        await self._make_room(entry.memory, time.monotonic() + WAIT_SECONDS)
        try:
            await self._in_thread(entry.open)
        except Exception as error:  # what is wrong with it must not concern the others
            entry.failed = time.monotonic()
            _log.error("the learner %s cannot be loaded: %s", entry.name, error)
            raise _not_loaded() from error
        self.loads, self.load_seconds = self.loads + 1, self.load_seconds + time.monotonic() - began

    async def _make_room(self, needed: int, until: float | None) -> None:
        """Writes learners out until so many bytes of memory are free, and waits for it if a time is given.

        A learner that needs more than all of the memory is loaded alone. Where all are in use, the one that was loaded
        first takes no more requests until then, or others might wait for ever.
        """
        leaving: Hosted | None = None
        try:
            while loaded := self.loaded():
                if sum(entry.memory for entry in loaded) + needed <= self.limits.loaded_bytes:
                    return
                idle = [entry for entry in loaded if not entry.users]
                if idle:
                    oldest = min(idle, key=lambda entry: entry.used)
                    await self._in_thread(oldest.close, *oldest.take())
                    await self._in_thread(give_memory_back)  # now that nothing refers to it
                    self.written_out += 1
                elif until is None:
                    return
                else:
                    leaving = leaving or min(loaded, key=lambda entry: entry.loaded_at)
                    leaving.is_leaving = True
                    await self._wait_for_release(until)
        finally:
            if leaving is not None:
                leaving.is_leaving = False

    async def _wait_for_release(self, until: float) -> None:
        self._released.clear()
        try:
            async with asyncio.timeout(until - time.monotonic()):
                await self._released.wait()
        except TimeoutError:
            message = "Requests in progress take all the memory or the learner itself: try again later."
            raise RequestError(503, "in_use", message, retry_after=5) from None

    def _limit_pending(self) -> None:
        """Images of all learners together may wait for a label up to the limit of one service."""
        while sum(entry.pending.bytes for entry in self.entries.values()) > self.limits.pending_bytes:
            max(self.entries.values(), key=lambda entry: entry.pending.bytes).pending.drop_oldest()

    async def _in_thread(self, work: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._files, work, *given)

    def _require_usable(self) -> None:
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder} is a file: name a folder for learners, or one that does not exist yet")
        require_real_folder(self.folder)
        if (self.folder / META_FILE).exists() or (self.folder / SERVICE).exists():
            raise ValueError(f"{self.folder} holds one learner: leave --several out, or name the folder above it")


def unknown_learner() -> RequestError:
    return RequestError(404, "unknown_learner", "There is no learner of this name: GET /v1 lists them.")


def _not_loaded() -> RequestError:
    message = "This learner cannot be loaded: the log of the service says why."
    return RequestError(503, "not_loaded", message, retry_after=RETRY_SECONDS)


def _new_tokens() -> tuple[str, str]:
    return secrets.token_urlsafe(24), secrets.token_urlsafe(24)
