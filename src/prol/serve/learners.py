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
import ctypes
import gc
import logging
import platform
import re
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from filelock import BaseFileLock

from prol import registry
from prol.backbones import Backbone, open_backbone
from prol.creation import require_blocks
from prol.files import UnsafeFile, create_file, flush_names, require_real_folder, take_lock, write_folder, write_json
from prol.runfiles import Backbone as SavedBackbone
from prol.runs.format import META_FILE, MODEL_FILE, read_meta
from prol.runs.loading import open_saved_backbone, size_of
from prol.serve.errors import RequestError, not_written
from prol.serve.monitoring import Activity
from prol.serve.pending import Pending
from prol.serve.schemas import NewLearnerBody, OwnLimits
from prol.serve.security import RateLimiter, Tokens, digest_of
from prol.serve.service import Lifecycle, Service
from prol.serve.settings import Limits, ServeOptions
from prol.serve.store import SERVICE, SEVERAL_FILE, Store, open_service
from prol.serve.uploads import MemoryBudget
from prol.serve.workers import Workers
from prol.typed_json import read_file

ACCESS_FILE = "access.json"
IN_USE = ".in_use"
"""In the folder `service` of a learner while it is loaded: what it has may wait for a checkpoint, or to be erased."""
FORMAT = 1
NAME_RULE = "a name has 1 to 64 lower-case letters, digits, - and _, and begins with a letter or a digit"

COPIES, BESIDES = 10, 20 << 20
"""Memory of a loaded learner, in times of its checkpoint, and bytes besides: the learner, its last committed state,
a snapshot, what both have solved, and the record for an undo; as `benchmarks/serve_several.py` measures it."""
LEARNING, SOLVING = 2, 1
"""Batches that are learnt, and snapshots that are made, at a time."""
WAIT_SECONDS = 30.0
"""For memory, while all loaded learners are in use; for the requests in progress before a deletion."""
RETRY_SECONDS = 5.0
"""After which a learner that could not be loaded is tried again."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LEFT = re.compile(r"\.[a-z0-9_-]+\.(new|deleted)")
_ARENA_MAX = -8
_LIBRARY = ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
_log = logging.getLogger("prol")


class _Index(TypedDict):
    format: int
    backbone: SavedBackbone
    precision: str


class _Access(TypedDict):
    format: int
    read: str | None
    write: str | None
    limits: dict[str, Any]


class Entry:
    """One of several learners: who may use it, and its service while it is loaded."""

    def __init__(self, folder: Path, access: _Access, limits: Limits, admin: bytes | None, method: str | None) -> None:
        self.name, self.folder, self.method = folder.name, folder, method
        self.tokens = Tokens(admin=admin)
        self.grant(access)
        self.limits = OwnLimits.model_validate(access["limits"]).within(limits)
        self.rate = None if self.limits.rate is None else RateLimiter(self.limits.rate)
        # These outlive the service: images wait for their labels, and counters count, while it is not loaded.
        self.activity = Activity()
        self.pending = Pending(self.limits.pending_images, self.limits.pending_bytes, self.limits.pending_seconds)
        self.service: Service | None = None
        self.store: Store | None = None
        self.users, self.used, self.loaded_at = 0, 0.0, 0.0
        """Requests in progress, when the last one came, and when it was loaded."""
        self.is_going = self.is_leaving = False
        """Whether it is being deleted; whether new requests wait, because others need the memory."""
        self.failed = -RETRY_SECONDS
        self.bytes = _bytes_on_disk(folder)

    @property
    def memory(self) -> int:
        """While it is loaded."""
        return COPIES * self.bytes + BESIDES

    def take(self) -> tuple[Service, Store]:
        """Its service, which is dropped: from here on requests wait until it is loaded again."""
        service, store = self.service, self.store
        assert service is not None
        assert store is not None
        self.service = self.store = None
        return service, store

    def grant(self, access: _Access) -> None:
        """Tokens are in effect from the next request on."""
        read, write = (None if one is None else bytes.fromhex(one) for one in (access["read"], access["write"]))
        self.access, self.tokens = access, replace(self.tokens, read=read, write=write)


class Learners:
    """All learners of a folder."""

    def __init__(
        self, folder: Path, options: ServeOptions, limits: Limits, tokens: Tokens, warn: Callable[[str], None]
    ) -> None:
        self.folder, self.limits, self.tokens = folder, limits, tokens
        self.lifecycle, self.activity, self.budget = Lifecycle(), Activity(), MemoryBudget(limits.memory_bytes)
        self.entries: dict[str, Entry] = {}
        self.loads = self.written_out = 0
        self.load_seconds = 0.0
        self._killed: list[str] = []
        self._options, self._warn = options, warn
        self._backbone: Backbone | None = None
        self._workers: Workers | None = None
        self._lock: BaseFileLock | None = None
        self._changing, self._released = asyncio.Lock(), asyncio.Event()
        """Held while a learner is loaded, written out, created or deleted; set when a request has ended."""
        _use_one_arena()
        self._files = ThreadPoolExecutor(1, thread_name_prefix="prol-learners")

    def open(self) -> None:
        """Opens the network, and finds the learners of the folder without loading any."""
        self._require_usable()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = take_lock(self.folder)
        index = self.folder / SEVERAL_FILE
        if index.exists():
            saved = read_file(index, _Index)
            self._backbone = open_saved_backbone(
                saved, self.folder, self._options.backbone, device=self._options.device
            )
        else:
            self._backbone = b = open_backbone(self._options.backbone or "builtin", device=self._options.device)
            described = {"backbone": {"name": b.name, "sha256": b.sha256}, "precision": b.precision}
            write_json(index, {"format": FORMAT, **described})
        self._workers = Workers(self._backbone.device, LEARNING, SOLVING)
        for place in sorted(self.folder.iterdir()):
            if _LEFT.fullmatch(place.name) and not place.is_symlink():
                shutil.rmtree(place, ignore_errors=True)  # of a process that was killed
            elif place.is_dir() and not place.name.startswith("."):
                self._find(place)
        self.lifecycle.opened(None)

    @property
    def backbone_name(self) -> str:
        return "" if self._backbone is None else self._backbone.name.partition("@")[0]

    def find(self, name: str) -> Entry | None:
        entry = self.entries.get(name)
        return None if entry is None or entry.is_going else entry

    def loaded(self) -> list[Entry]:
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
        if _NAME.fullmatch(name) is None:
            raise RequestError(422, "bad_name", f"This is no name of a learner: {NAME_RULE}.")
        tokens = [secrets.token_urlsafe(24) if self.tokens.required else None for _ in range(2)]
        wanted.limits.require_within(self.limits)
        access = _access(tokens, wanted.limits.model_dump(exclude_none=True))
        async with self._changing:
            if name in self.entries or (self.folder / name).exists():
                raise RequestError(409, "name_taken", "There is a learner of this name already: choose another one.")
            if len(self.entries) >= self.limits.learners:
                message = f"There are {self.limits.learners} learners already: delete one, or raise --learners."
                raise RequestError(409, "too_many_learners", message)
            try:
                await self._in_thread(self._build, wanted, access)
            except ValueError as error:
                said = " ".join(str(error).split()).rstrip(".")
                raise RequestError(422, "not_created", f"{said[:1].upper()}{said[1:]}.") from error
            except OSError as error:
                raise not_written(error) from error
            self.entries[name] = self._entry(self.folder / name, access, wanted.method)
        return {"name": name, "read_token": tokens[0], "write_token": tokens[1]}

    async def renew_tokens(self, name: str) -> dict[str, Any]:
        """New tokens for a learner; those that it had are worthless from then on."""
        if not self.tokens.required:
            message = "This service has no tokens: give it an administrator's token, --admin-token-file."
            raise RequestError(409, "no_tokens", message)
        tokens: list[str | None] = [secrets.token_urlsafe(24) for _ in range(2)]
        async with self._changing:
            entry = self.find(name)
            if entry is None:
                raise unknown_learner()
            access = _access(tokens, entry.access["limits"])
            try:
                await self._in_thread(write_json, entry.folder / ACCESS_FILE, access)
            except OSError as error:
                raise not_written(error) from error
            entry.grant(access)
        return {"name": name, "read_token": tokens[0], "write_token": tokens[1]}

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
                await self._in_thread(self._erase, entry)
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
                entry.bytes = _bytes_on_disk(entry.folder)
            if len(self.loaded()) > 1:
                await self._make_room(0, None)
            await self._in_thread(_trim)

    def stop_exports(self) -> None:
        for entry in self.loaded():
            if entry.service is not None:
                entry.service.stop_exports()

    def finish(self) -> None:
        """Writes out all learners that are loaded."""
        self._files.shutdown()
        if self._workers is not None:
            self._workers.stop()
        failed = [entry.name for entry in self.loaded() if not self._close(entry, *entry.take())]
        if failed:
            raise OSError(
                f"saved learners in {self.folder} could not be updated ({', '.join(failed)}); nothing is lost: "
                f"everything that was acknowledged is in their folders {SERVICE}"
            )

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    async def _load(self, entry: Entry) -> None:
        """`_changing` is held."""
        if entry.is_going or self.entries.get(entry.name) is not entry:
            raise unknown_learner()
        if entry.service is not None:
            return
        if (unavailable := self.lifecycle.unavailable()) is not None:
            raise unavailable
        if time.monotonic() < entry.failed + RETRY_SECONDS:
            raise _not_loaded()
        await self._make_room(entry.memory, time.monotonic() + WAIT_SECONDS)
        try:
            await self._in_thread(self._open, entry)
        except Exception as error:  # whatever is wrong with it concerns the others nothing
            entry.failed = time.monotonic()
            _log.error("the learner %s cannot be loaded: %s", entry.name, error)
            raise _not_loaded() from error

    async def _make_room(self, needed: int, until: float | None) -> None:
        """Writes learners out until so many bytes of memory are free, and waits for it if a time is given.

        A learner that needs more than all of the memory is loaded alone. Where all are in use, the one that was loaded
        first takes no more requests until then, or others might wait for ever.
        """
        leaving: Entry | None = None
        try:
            while loaded := self.loaded():
                if sum(entry.memory for entry in loaded) + needed <= self.limits.loaded_bytes:
                    return
                idle = [entry for entry in loaded if not entry.users]
                if idle:
                    oldest = min(idle, key=lambda entry: entry.used)
                    await self._in_thread(self._close, oldest, *oldest.take())
                    await self._in_thread(_give_memory_back)  # now that nothing refers to it
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

    def _open(self, entry: Entry) -> None:
        assert self._workers is not None
        began, store = time.monotonic(), Store(entry.folder, self._options.checkpoints, self._options.journal)
        try:
            opened = open_service(store, self._options, self._warn, self._backbone)
            create_file(store.place / IN_USE).close()
            service = Service(store, opened, entry.limits, self.budget, entry.activity, self._workers, entry.pending)
        except BaseException:
            store.release()
            raise
        service.start()
        entry.store, entry.service, entry.method = store, service, service.method
        entry.bytes, entry.used = _bytes_on_disk(entry.folder), time.monotonic()
        entry.loaded_at = entry.used
        self.loads += 1
        self.load_seconds += time.monotonic() - began

    def _close(self, entry: Entry, service: Service, store: Store) -> bool:
        """Writes a learner out if it has changed, and drops it; whether its saved learner is up to date.

        If not, nothing is lost: what was acknowledged is in its checkpoint and its journal.
        """
        saved = True
        try:
            service.writer.finish()
            if service.writer.has_changed:
                service.writer.save()
            (store.place / IN_USE).unlink(missing_ok=True)
        except Exception as error:  # as above
            saved = False
            _log.error("the saved learner %s could not be updated: %s", entry.name, error)
        finally:
            store.release()
            entry.bytes = _bytes_on_disk(entry.folder)
        return saved

    def _build(self, wanted: NewLearnerBody, access: _Access) -> None:
        """The folder of a new learner, which appears whole or not at all."""
        assert self._backbone is not None
        kind = registry.registered_method(wanted.method)
        options = kind.read_options(wanted.options)
        require_blocks(kind, self._backbone)
        size = size_of(kind, self._backbone, options, wanted.seed) or 0
        if COPIES * size + BESIDES > self.limits.loaded_bytes:
            raise ValueError(
                f"a learner with these options has {size / 1e6:,.0f} MB, and takes {COPIES} times as much memory as it "
                "is served: choose smaller ones, or raise --loaded-bytes"
            )
        chosen = ServeOptions(wanted.method, None, wanted.options, wanted.seed, checkpoints=self._options.checkpoints)

        def fill(place: Path) -> None:
            store = Store(place, self._options.checkpoints)
            try:
                open_service(store, chosen, self._warn, self._backbone)
            finally:
                store.release()
            write_json(place / ACCESS_FILE, access)

        write_folder(self.folder / wanted.name, fill)

    def _erase(self, entry: Entry) -> None:
        """Once the folder has another name, the learner is gone; what a kill leaves of it is removed at the start."""
        if entry.service is None:
            store = Store(entry.folder, self._options.checkpoints)
            store.lock()
        else:
            service, store = entry.take()
            service.writer.finish()
            del service
        try:
            store.journal.erase()
            gone = entry.folder.with_name(f".{entry.name}.deleted")
            shutil.rmtree(gone, ignore_errors=True)
            entry.folder.rename(gone)
            flush_names(self.folder)
        finally:
            store.release()
        shutil.rmtree(gone, ignore_errors=True)
        _give_memory_back()

    def _find(self, place: Path) -> None:
        """Adds the learner in a folder, unless there is none."""
        try:
            require_real_folder(place)
            if not ((place / META_FILE).exists() or (place / SERVICE).exists()):
                raise ValueError("it holds no saved learner")
            if _NAME.fullmatch(place.name) is None:
                raise ValueError(NAME_RULE)
            access = _access([None, None], {})
            if (place / ACCESS_FILE).exists():
                access = _Access(**read_file(place / ACCESS_FILE, _Access))  # type: ignore[typeddict-item]
            method = None
            with suppress(ValueError, OSError):
                method = read_meta(place)["method"]
            self.entries[place.name] = self._entry(place, access, method)
            if (place / SERVICE / IN_USE).exists():
                self._killed.append(place.name)
        except ValueError as error:
            self._warn(f"{place} is not served: {' '.join(str(error).split())}")

    def _entry(self, place: Path, access: _Access, method: str | None) -> Entry:
        return Entry(place, access, self.limits, self.tokens.admin, method)

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


def _access(tokens: list[str | None], limits: dict[str, Any]) -> _Access:
    read, write = (None if token is None else digest_of(token).hex() for token in tokens)
    return {"format": FORMAT, "read": read, "write": write, "limits": limits}


def _bytes_on_disk(folder: Path) -> int:
    """Of the newest checkpoint, or of the saved learner where there is none."""
    with suppress(OSError, UnsafeFile):
        if (found := Store(folder, 2).checkpoints.newest_bytes()) is not None:
            return found
        return (folder / MODEL_FILE).stat().st_size
    return 0


def _give_memory_back() -> None:
    """To the system, from a learner that was dropped: it is part of cycles."""
    gc.collect()
    _trim()


def _trim() -> None:
    """Gives freed memory back to the system, which the C library of Linux does not do by itself."""
    if _LIBRARY is not None:
        _LIBRARY.malloc_trim(0)


def _use_one_arena() -> None:
    """Threads share freed memory. By default up to eight arenas per core keep what any thread once needed."""
    if _LIBRARY is not None:
        _LIBRARY.mallopt(_ARENA_MAX, 1)
