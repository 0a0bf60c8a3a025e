"""The journal of a service: what commits have changed since the last checkpoint, appended to one file.

An entry is its length (8 bytes), a digest (32) and a safetensors file with an `Update` and what changed in the records.
The digest covers the one before it, and the first one the checkpoint's: an entry counts only in its place. An append
returns after fsync. The first entry that is incomplete ends the journal, as when a process was killed while it wrote.

A journal is short-lived: the next checkpoint contains what it says, and then it is overwritten with zeros and removed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

from safetensors import SafetensorError
from safetensors.torch import load, save

from prol.files import create_file, flush_names, open_regular, require_real_folder
from prol.serve.changes import Update, require_update
from prol.serve.records import Records
from prol.typed_json import Count, problem_of

MOST_ENTRIES = 64
MOST_SECONDS = 30.0
"""Age of the first entry at which a checkpoint replaces the journal."""
MOST_BYTES = 64 << 20
_HEAD = 40


class _Note(TypedDict):
    version: Count
    update: dict[str, Any]
    records: dict[str, Any]
    answers: list[list[Any]]
    keys: Count


@dataclass(frozen=True)
class Entry:
    """One commit: its version, what it changed in the learner, and the JSON of what it changed in the records."""

    version: int
    update: Update
    records: dict[str, Any]

    @classmethod
    def of(cls, version: int, update: Update, before: Records, after: Records) -> Entry:
        return cls(version, update, _records_change(before, after))

    def to_bytes(self) -> bytes:
        note = {"version": self.version, "update": self.update.content, **self.records}
        tensors = {name: tensor.contiguous() for name, tensor in self.update.tensors.items()}
        return save(tensors, {"note": json.dumps(note)})

    @classmethod
    def from_bytes(cls, content: bytes) -> Entry:
        """ValueError for what no service has written."""
        try:
            head = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
            note, tensors = json.loads(head["__metadata__"]["note"]), load(content)
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"it is no safetensors file with a note: {error}") from error
        if (problem := problem_of(note, _Note)) is not None:
            raise ValueError(problem)
        version, update = note.pop("version"), note.pop("update")
        require_update(update)
        return cls(version, Update(tensors, update), note)

    def records_after(self, before: Records) -> Records:
        """The records of the commit, from those of the commit before it."""
        content = before.to_json() | self.records["records"]
        after = Records.from_json(content | {"answers": content["answers"] + self.records["answers"]})
        after.forget_all_but(self.records["keys"])
        return after


def _records_change(before: Records, after: Records) -> dict[str, Any]:
    names = [part.name for part in fields(Records) if part.name != "answers"]
    changed = {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}
    new = [[name, *answer] for name, answer in after.answers.items() if name not in before.answers]
    return {"records": changed, "answers": new, "keys": len(after.answers)}


class Journal:
    """The file of entries after one checkpoint. Only the writer appends; it is opened for each entry."""

    def __init__(self, folder: Path, seconds: float = MOST_SECONDS) -> None:
        self.folder, self.seconds = folder, seconds
        self._base: int | None = None
        self._digest = b""
        self._size = self.entries = 0
        self._began = 0.0

    def is_open(self) -> bool:
        """Whether entries may be appended: a checkpoint was written, and no append has failed since."""
        return self._base is not None

    def is_full(self) -> bool:
        return self.entries >= MOST_ENTRIES or self._size >= MOST_BYTES or self.seconds_left() == 0

    def seconds_left(self) -> float | None:
        """Until a checkpoint is due; None without entries."""
        return max(0.0, self._began + self.seconds - time.monotonic()) if self.entries else None

    def restart(self, base: int, checksum: str) -> None:
        """A checkpoint is on disk: entries follow it from here, and what was written before is erased."""
        self._base, self._digest = base, _first_digest(checksum)
        self._size = self.entries = 0
        self.erase()

    def append(self, entry: Entry) -> None:
        """Returns when the entry is on disk. If it raises, no part of it is there, and nothing more is appended."""
        content = entry.to_bytes()
        digest = hashlib.sha256(self._digest + content).digest()
        assert self._base is not None
        path, base = self._path(self._base), self._base
        self._base = None  # until it has succeeded
        require_real_folder(self.folder)
        with create_file(path) if not self._size else open_regular(path, "r+b") as file:
            if os.fstat(file.fileno()).st_size != self._size:
                raise OSError(f"{path} was changed by somebody else")
            try:
                _write_at(file.fileno(), self._size, len(content).to_bytes(8, "little") + digest + content)
                os.fsync(file.fileno())
                if not self._size:
                    flush_names(self.folder)
            except BaseException:
                os.ftruncate(file.fileno(), self._size)
                os.fsync(file.fileno())
                raise
        if not self.entries:
            self._began = time.monotonic()
        self._base, self._digest = base, digest
        self._size, self.entries = self._size + _HEAD + len(content), self.entries + 1

    def read(self, base: int, checksum: str, warn: Callable[[str], None]) -> tuple[list[Entry], bool]:
        """The entries after a checkpoint, up to the first that is incomplete or damaged; whether that is all."""
        path = self._path(base)
        try:
            with open_regular(path) as file:
                content = file.read()
        except FileNotFoundError:
            return [], True
        entries: list[Entry] = []
        digest, place = _first_digest(checksum), 0
        while place < len(content):
            length = int.from_bytes(content[place : place + 8], "little")
            stated, part = content[place + 8 : place + _HEAD], content[place + _HEAD : place + _HEAD + length]
            digest = hashlib.sha256(digest + part).digest()
            end = place + _HEAD + length
            if end > len(content) or stated != digest:
                if end < len(content):
                    warn(f"{path} is damaged after {len(entries)} entries: what was learnt after them is lost")
                break
            entries.append(Entry.from_bytes(part))
            place = end
        return entries, place == len(content)

    def erase(self, before: int | None = None) -> None:
        """Overwrites and removes journals, all or those of checkpoints before one.

        What cannot be removed is tried again after the next checkpoint.
        """
        for path in self.files():
            if before is not None and path.stem >= self._path(before).stem:
                continue
            try:
                _erase(path)
            except (OSError, ValueError) as error:
                logging.getLogger("prol").error("%s, which is not needed any more, cannot be erased: %s", path, error)

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.journal"))

    def _path(self, base: int) -> Path:
        return self.folder / f"{base:09d}.journal"


def _first_digest(checksum: str) -> bytes:
    return hashlib.sha256(checksum.encode()).digest()


def _write_at(handle: int, place: int, content: bytes) -> None:
    """Writes without a buffer, whose rest would be written when the file is closed after a failure."""
    left = memoryview(content)
    os.lseek(handle, place, os.SEEK_SET)
    while left:
        left = left[os.write(handle, left) :]


def _erase(path: Path) -> None:
    """Writes zeros over a file before it is removed, so that its blocks hold nothing where the file system allows."""
    try:
        with open_regular(path, "r+b") as file:
            _write_at(file.fileno(), 0, bytes(os.fstat(file.fileno()).st_size))
            os.fsync(file.fileno())
    finally:
        path.unlink()
