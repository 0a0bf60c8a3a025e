"""`events.jsonl`: one line an event, the same whether or not the run was interrupted."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Self

from prol.evaluation import Event


class EventLog:
    """Appends events to a file from an offset on; what lies behind it belongs to work that was lost."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        path.touch()
        size = path.stat().st_size
        if size < offset:
            raise ValueError(f"{path} has {size} bytes, but had {offset} at the last checkpoint: start the run again")
        self._file = path.open("r+b")
        self._file.truncate(offset)
        self._file.seek(offset)

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds  # times would make the logs of two equal runs differ
        line = json.dumps({"event": type(event).__name__, **asdict(event)}, ensure_ascii=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def settle(self) -> int:
        """Forces everything so far onto the disk, and returns the offset behind it."""
        os.fsync(self._file.fileno())
        return self._file.tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
