"""`events.jsonl`: one line per event, on a CPU the same whether or not the run was interrupted."""

from __future__ import annotations

import dataclasses
import json
import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from prol.evaluation import ChunkLearnt, Event

MOST_WAITING = 2
"""Steps whose losses the device may still be computing."""


class EventLog:
    """Appends events to a file from an offset on; anything behind it belongs to lost work."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        path.touch()
        size = path.stat().st_size
        if size < offset:
            raise ValueError(f"{path} has {size} bytes, but had {offset} at the last checkpoint: start the run again")
        self._waiting: deque[Event] = deque()
        self._file = path.open("r+b")
        self._file.truncate(offset)
        self._file.seek(offset)

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds  # times would make the logs of two equal runs differ
        self._waiting.append(event)
        while self._waiting and (self._late() > MOST_WAITING or _is_known(self._waiting[0])):
            self._write(self._waiting.popleft())
        self._file.flush()

    def _late(self) -> int:
        return sum(not _is_known(event) for event in self._waiting)

    def _write(self, event: Event) -> None:
        fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
        content = {"event": type(event).__name__, **fields}
        self._file.write(json.dumps(content, ensure_ascii=False, default=_plain).encode() + b"\n")

    def flush(self) -> int:
        """Forces all events so far onto the disk, and returns the file's length."""
        self._write_waiting()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with self._file:
                self._write_waiting()
            return
        with suppress(OSError):  # events after the last checkpoint are written again on resume
            self._file.close()

    def _write_waiting(self) -> None:
        while self._waiting:
            self._write(self._waiting.popleft())
        self._file.flush()


def _is_known(event: Event) -> bool:
    """Whether the device has computed the event's numbers."""
    return not isinstance(event, ChunkLearnt) or bool(getattr(event.report, "ready", True))


def _plain(value: Any) -> Any:
    """JSON for late losses and results."""
    if isinstance(value, Mapping):
        return dict(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
