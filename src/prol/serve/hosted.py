"""One of several learners: its folder, who may use it, and its service while it is loaded."""

from __future__ import annotations

import ctypes
import gc
import logging
import platform
import re
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, cast

from prol import registry
from prol.backbones import Backbone
from prol.creation import require_blocks
from prol.files import UnsafeFile, create_file, flush_names, require_real_folder, write_folder, write_json
from prol.runs.format import META_FILE, MODEL_FILE, read_meta
from prol.runs.loading import size_of
from prol.serve.monitoring import Activity
from prol.serve.pending import Pending
from prol.serve.schemas import NewLearnerBody, OwnLimits
from prol.serve.security import RateLimiter, Tokens, digest_of
from prol.serve.service import Service
from prol.serve.settings import Limits, ServeOptions
from prol.serve.store import SERVICE, Store, open_service
from prol.serve.uploads import MemoryBudget
from prol.serve.workers import Workers
from prol.typed_json import read_file

ACCESS_FILE = "access.json"
IN_USE = ".in_use"
"""In the folder `service` of a learner while it is loaded: what it has may wait for a checkpoint, or to be erased."""
FORMAT = 1
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
NAME_RULE = "a name has 1 to 64 lower-case letters, digits, - and _, and begins with a letter or a digit"
LEFT_OVER = re.compile(r"\.[a-z0-9_-]+\.(new|deleted)")
"""Folders that a process leaves when it is killed while it creates or deletes a learner."""

COPIES, BESIDES = 10, 20 << 20
"""Memory of a loaded learner, in times of its checkpoint, and bytes besides: the learner, its last committed state,
a snapshot, what both have solved, and the record for an undo; as `benchmarks/serve_several.py` measures it."""

_ARENA_MAX = -8
_LIBRARY = ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
_log = logging.getLogger("prol")


class Access(TypedDict):
    """Hashes of the tokens of a learner, and its limits."""

    format: int
    read: str | None
    write: str | None
    limits: dict[str, Any]


@dataclass(frozen=True)
class Shared:
    """What all learners of a service have in common."""

    backbone: Backbone
    workers: Workers
    budget: MemoryBudget
    options: ServeOptions
    limits: Limits
    admin: bytes | None
    warn: Callable[[str], None]


class Hosted:
    """One of several learners. `open`, `close` and `erase` take a while: one thread calls them."""

    def __init__(self, folder: Path, access: Access, shared: Shared, method: str | None) -> None:
        self.name, self.folder, self.method, self._shared = folder.name, folder, method, shared
        self.tokens = Tokens(admin=shared.admin)
        self.grant(access)
        self.limits = OwnLimits.model_validate(access["limits"]).within(shared.limits)
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
        self.failed: float | None = None
        """When it could not be loaded."""
        self.bytes = 0
        self.measure()

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

    def grant(self, access: Access) -> None:
        """Tokens are in effect from the next request on."""
        read, write = (None if one is None else bytes.fromhex(one) for one in (access["read"], access["write"]))
        self.access, self.tokens = access, replace(self.tokens, read=read, write=write)

    def open(self) -> None:
        shared, store = self._shared, Store(self.folder, self._shared.options.checkpoints, self._shared.options.journal)
        try:
            opened = open_service(store, shared.options, shared.warn, shared.backbone)
            create_file(store.place / IN_USE).close()
            service = Service(store, opened, self.limits, shared.budget, self.activity, shared.workers, self.pending)
        except BaseException:
            store.release()
            raise
        service.start()
        self.store, self.service, self.method = store, service, service.method
        self.used = self.loaded_at = time.monotonic()
        self.measure()

    def close(self, service: Service, store: Store) -> bool:
        """Writes out what `take` has returned, if it has changed; whether the saved learner is up to date.

        If not, nothing is lost: what was acknowledged is in its checkpoint and its journal.
        """
        try:
            service.writer.finish()
            if service.writer.has_changed:
                service.writer.save()
            (store.place / IN_USE).unlink(missing_ok=True)
            return True
        except Exception as error:  # what is wrong with it must not concern the others
            _log.error("the saved learner %s could not be updated: %s", self.name, error)
            return False
        finally:
            store.release()
            self.measure()

    def erase(self) -> None:
        """Once the folder has another name, the learner is gone; what a kill leaves of it is removed at the start."""
        if self.service is None:
            store = Store(self.folder, self._shared.options.checkpoints)
            store.lock()
        else:
            service, store = self.take()
            service.writer.finish()
            del service
        try:
            store.journal.erase()
            gone = self.folder.with_name(f".{self.name}.deleted")
            shutil.rmtree(gone, ignore_errors=True)
            self.folder.rename(gone)
            flush_names(gone.parent)
        finally:
            store.release()
        shutil.rmtree(gone, ignore_errors=True)
        give_memory_back()

    def was_in_use(self) -> bool:
        """Whether it was loaded when a process was killed."""
        return (self.folder / SERVICE / IN_USE).exists()

    def measure(self) -> None:
        """Looks at the newest checkpoint, or at the saved learner where there is none."""
        with suppress(OSError, UnsafeFile):
            found = Store(self.folder, 2).checkpoints.newest_bytes()
            self.bytes = (self.folder / MODEL_FILE).stat().st_size if found is None else found


def new_access(read: str | None, write: str | None, limits: dict[str, Any]) -> Access:
    hashes = [None if token is None else digest_of(token).hex() for token in (read, write)]
    return {"format": FORMAT, "read": hashes[0], "write": hashes[1], "limits": limits}


def build(folder: Path, wanted: NewLearnerBody, access: Access, shared: Shared) -> Hosted:
    """A new learner, whose folder appears whole or not at all."""
    kind = registry.registered_method(wanted.method)
    options = kind.read_options(wanted.options)
    require_blocks(kind, shared.backbone)
    size = size_of(kind, shared.backbone, options, wanted.seed) or 0
    if COPIES * size + BESIDES > shared.limits.loaded_bytes:
        raise ValueError(
            f"a learner with these options has {size / 1e6:,.0f} MB, and takes {COPIES} times as much memory as it "
            "is served: choose smaller ones, or raise --loaded-bytes"
        )
    chosen = replace(shared.options, method=wanted.method, options=wanted.options, seed=wanted.seed)

    def fill(place: Path) -> None:
        store = Store(place, chosen.checkpoints)
        try:
            open_service(store, chosen, shared.warn, shared.backbone)
        finally:
            store.release()
        write_json(place / ACCESS_FILE, access)

    write_folder(folder, fill)
    return Hosted(folder, access, shared, wanted.method)


def hosted_in(place: Path, shared: Shared) -> Hosted | None:
    """The learner in a folder; says so where there is none."""
    try:
        require_real_folder(place)
        if not ((place / META_FILE).exists() or (place / SERVICE).exists()):
            raise ValueError("it holds no saved learner")
        if NAME.fullmatch(place.name) is None:
            raise ValueError(NAME_RULE)
        access = new_access(None, None, {})
        if (place / ACCESS_FILE).exists():
            access = cast(Access, read_file(place / ACCESS_FILE, Access))
        method = None
        with suppress(ValueError, OSError):
            method = read_meta(place)["method"]
        return Hosted(place, access, shared, method)
    except ValueError as error:
        shared.warn(f"{place} is not served: {' '.join(str(error).split())}")
        return None


def give_memory_back() -> None:
    """To the system, from a learner that was dropped: it is part of cycles."""
    gc.collect()
    trim()


def trim() -> None:
    """Gives freed memory back to the system, which the C library of Linux does not do by itself."""
    if _LIBRARY is not None:
        _LIBRARY.malloc_trim(0)


def use_one_arena() -> None:
    """Threads share freed memory. By default up to eight arenas per core keep what any thread once needed."""
    if _LIBRARY is not None:
        _LIBRARY.mallopt(_ARENA_MAX, 1)
