"""What a run can be resumed from: numbered checkpoints, each complete or absent, and the log of its events."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from prol.backbones.processor import hardware_name
from prol.evaluation import ChunkLearnt, ChunkMissed, Cursor, Event, TaskEnded
from prol.files import UnsafeFile, create_file, open_regular, publish, require_real_folder
from prol.learner import Learner
from prol.runs.format import file_sha256, read_note, read_tensors, write_tensors
from prol.runs.loading import load_checked
from prol.runs.setup import NOT_SETTINGS, require_same
from prol.runs.timing import Timing

MOST_WAITING = 2
"""Steps whose losses the device may still be computing."""

_NAME = re.compile(r"(\d+)-([0-9a-f]{64})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint, its number, and the checksum of its file."""

    number: int
    checksum: str
    tensors: dict[str, Tensor]
    content: dict[str, Any]


class Checkpoints:
    """The last few checkpoints of one run, each self-contained: damage to one does not affect the others."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep

    def write(self, number: int, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> str:
        """Adds a checkpoint, then removes all but the newest; returns its checksum."""
        require_real_folder(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self.folder / ".unfinished"
        try:
            checksum = write_tensors(unfinished, tensors, note=json.dumps({"checkpoint": number, **content}))
            published = self.folder / f"{number:09d}-{checksum}.safetensors"
            publish(unfinished, published)
        finally:
            with suppress(OSError):  # the error that stopped the write is the one to report
                unfinished.unlink(missing_ok=True)
        others = [path for _, _, path in self._newest_first() if path != published]
        for path in others[self.keep - 1 :]:
            with suppress(OSError):  # the new one is there; this one is removed after the next
                path.unlink()
        return checksum

    def read_newest(
        self, warn: Callable[[str], None], remove_damaged: bool = True
    ) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """The newest undamaged checkpoint; damaged ones are reported and, optionally, removed."""
        newest = self.find_newest(warn, remove_damaged)
        return None if newest is None else (newest.tensors, newest.content)

    def find_newest(self, warn: Callable[[str], None], remove_damaged: bool = True) -> Checkpoint | None:
        """The same, with its number and checksum."""
        for other in sorted(set(self._files()) - {path for _, _, path in self._newest_first()}):
            warn(f"{other} is not named like a checkpoint: it is ignored")
        candidates = self._newest_first()
        for number, checksum, path in candidates:
            try:
                return Checkpoint(number, checksum, *_read(path, number, checksum))
            except UnsafeFile as error:
                warn(f"checkpoint cannot be read ({error}): going back to the one before it")
            except ValueError as error:
                warn(f"checkpoint {path} is damaged ({error}): going back to the one before it")
                if remove_damaged:
                    path.unlink()
            except OSError as error:  # it may be intact and readable later
                warn(f"checkpoint {path} cannot be read ({error.strerror}): going back to the one before it")
        if candidates:
            then = ": starting from the beginning" if remove_damaged else ""
            warn(f"no good checkpoint is left in {self.folder}{then}")
        return None

    def newest_number(self) -> int | None:
        """The highest number, even if that checkpoint is damaged."""
        return next((number for number, _, _ in self._newest_first()), None)

    def newest_bytes(self) -> int | None:
        """The size of that checkpoint."""
        return next((path.stat().st_size for _, _, path in self._newest_first()), None)

    def drop_after(self, number: int) -> None:
        """Removes checkpoints with higher numbers, as far as possible."""
        for present, _, path in self._newest_first():
            if present > number:
                with suppress(OSError):
                    path.unlink()

    def drop_before(self, number: int) -> None:
        """Removes checkpoints with lower numbers, whose content must be forgotten."""
        for present, _, path in self._newest_first():
            if present < number:
                path.unlink()

    def _newest_first(self) -> list[tuple[int, str, Path]]:
        """Number, checksum and path of each checkpoint."""
        named = [(path, _NAME.fullmatch(path.name)) for path in self._files()]
        return sorted(((int(match[1]), match[2], path) for path, match in named if match), reverse=True)

    def _files(self) -> list[Path]:
        require_real_folder(self.folder)
        return list(self.folder.glob("*.safetensors"))


def _read(path: Path, number: int, checksum: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The content of a file; a ValueError says what is wrong with it."""
    if file_sha256(path) != checksum:
        raise ValueError("its checksum is not that of its name")
    tensors = read_tensors(path)
    try:
        content = json.loads(read_note(path))
    except ValueError as error:
        raise ValueError(f"its note is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise ValueError("its note is no JSON object")
    if content.pop("checkpoint", None) != number:
        raise ValueError("its number is not that of its name")
    return tensors, content


class CheckpointWriter:
    """Writes a checkpoint every few chunks and at the end of each task.

    Within a task a checkpoint waits until checkpoints have taken no more than `share` of the time. `begun_with` are
    the settings that must not change before the run is resumed.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        every: int,
        share: float,
        begun_with: Mapping[str, Any],
        learner: Learner,
        cursor: Cursor,
        log: EventLog,
        timing: Timing,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.checkpoints, self.every, self.begun_with, self.clock = checkpoints, every, dict(begun_with), clock
        self.learner, self.cursor, self.log, self.timing = learner, cursor, log, timing
        self.pause_by_cost = (1 - share) / share
        self.last_chunk, self.ended, self.took = cursor.chunks, clock(), 0.0

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds
        if isinstance(event, TaskEnded) or (isinstance(event, ChunkLearnt | ChunkMissed) and self._is_due()):
            began = self.clock()
            self._write()
            self.last_chunk, self.ended = self.cursor.chunks, self.clock()
            self.took = self.ended - began

    def _is_due(self) -> bool:
        rested = self.clock() - self.ended >= self.took * self.pause_by_cost
        return rested and self.cursor.chunks - self.last_chunk >= self.every

    def _write(self) -> None:
        tensors, meta = self.learner.state()
        content = {
            "begun_with": self.begun_with,
            "learner": meta,
            "cursor": asdict(self.cursor),
            "timing": self.timing.state(),
            "events_bytes": self.log.flush(),
        }
        # Chunks and tasks only ever grow, so their sum numbers the checkpoints.
        self.checkpoints.write(self.cursor.chunks + self.cursor.tasks_evaluated, tensors, content)


def fixed_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings under which the checkpoints of a run are valid; versions may change, with a warning."""
    return {name: value for name, value in config.items() if name not in ("versions", *NOT_SETTINGS)}


def restore_newest(
    checkpoints: Checkpoints, learner: Learner, begun_with: Mapping[str, Any], warn: Callable[[str], None]
) -> tuple[Cursor, Timing, int]:
    """Restores the newest undamaged checkpoint: the position in the stream, the times and the length of the log.

    Without any checkpoint, that is the beginning. A checkpoint written under other settings is refused.
    """
    newest, hardware = checkpoints.read_newest(warn), hardware_name(learner.backbone.device)
    if newest is None:
        return Cursor(), Timing(hardware), 0
    tensors, content = newest
    try:
        then = content["begun_with"]
        require_same({name: then.get(name) for name in begun_with}, begun_with, warn)
        try:
            load_checked(learner, tensors, content["learner"])
        except ValueError as error:
            damage = f"the newest checkpoint in {checkpoints.folder} is damaged: {error}; remove it to use another"
            raise ValueError(damage) from error
        return Cursor(**content["cursor"]), Timing(hardware, content["timing"]), int(content["events_bytes"])
    except (KeyError, RuntimeError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the newest checkpoint in {checkpoints.folder} does not fit {learner.name} as it is now ({error!r}): "
            "resume it with the version of prol that wrote it, or start a new run"
        ) from error


class EventLog:
    """Appends events to a file from an offset on; anything behind it belongs to lost work."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        if not os.path.lexists(path):
            create_file(path).close()
        self._file = open_regular(path, "r+b")
        size = os.fstat(self._file.fileno()).st_size
        if size < offset:
            self._file.close()
            raise ValueError(f"{path} has {size} bytes, but had {offset} at the last checkpoint: start the run again")
        self._waiting: deque[Event] = deque()
        self._file.truncate(offset)
        self._file.seek(offset)

    def __call__(self, event: Event, seconds: float) -> None:
        del seconds  # times would make the logs of two equal runs differ
        self._waiting.append(event)
        while self._waiting:
            late = sum(not _is_known(event) for event in self._waiting)
            if late <= MOST_WAITING and not _is_known(self._waiting[0]):
                break
            self._write(self._waiting.popleft())
        self._file.flush()

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
