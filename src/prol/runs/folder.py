"""A run's folder: the names of its files, its status, and its lock."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from prol.files import LOCK, require_no_links, take_lock
from prol.runfiles import CONFIG, RESULT, TIMING, Config, Result, Timing
from prol.typed_json import DamagedFile, read_file

FolderStatus = Literal["empty", "unfinished", "finished", "something else"]

CHECKPOINT_SHARE = 0.1
"""The maximum share of the time for checkpoints within tasks, by default."""

_KINDS = {CONFIG: Config, RESULT: Result, TIMING: Timing}

_REMEDIES = {
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room on its disk or raise the quota",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "make it writable again",
    errno.EACCES: "make it writable again",
    errno.EPERM: "make it writable again",
}


class DamagedRun(ValueError):
    """A file of a run is missing or damaged; the message says what to do."""


class RunFolder:
    """Names and status of the files of one run.

    `config.json` is written first and `result.json` last, each in one step: a run with only the former is unfinished.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.json"
        self.split = self.path / "split.json"
        self.stream = self.path / "stream.json"
        self.events = self.path / "events.jsonl"
        self.result = self.path / "result.json"
        self.steps = self.path / "steps.json"
        self.timing = self.path / "timing.json"
        self.checkpoints = self.path / "checkpoint"
        self.model = self.path / "model"

    def status(self) -> FolderStatus:
        if self.result.is_file() and self.config.is_file():
            return "finished"
        if self.config.is_file():
            return "unfinished"
        if not self.path.exists():
            return "empty"
        leftovers = {LOCK, ".config.json.new"}
        only_leftovers = self.path.is_dir() and all(part.name in leftovers for part in self.path.iterdir())
        return "empty" if only_leftovers else "something else"

    def require_run(self) -> None:
        """Refuses a folder that holds no run."""
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path} does not exist: give the folder of a run")
        if not self.config.is_file():
            raise ValueError(f"{self.path} is not the folder of a run: it has no config.json")

    def require_free(self) -> None:
        """Refuses a folder in which a new run cannot start."""
        status = self.status()
        if status == "unfinished":
            raise ValueError(
                f"{self.path} holds an unfinished run: continue with `prol resume {self.path}`, or choose another --out"
            )
        if status != "empty":
            what = "a finished run" if status == "finished" else "something else"
            raise ValueError(f"{self.path} already holds {what}: choose another --out")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the folder's lock, which ends with the process at the latest."""
        require_no_links(self.path.resolve(), deep=True)
        with self.writing():
            lock = take_lock(self.path)
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Says what to do if the folder cannot be written to; everything up to the last checkpoint is safe."""
        try:
            yield
        except OSError as error:
            then = f"continue with `prol resume {self.path}`" if self.config.is_file() else "start the run again"
            remedy = _REMEDIES.get(error.errno or 0, "see to its disk")
            raise OSError(f"cannot write to {self.path} ({error.strerror or error}): {remedy}, then {then}") from error

    def read(self, file: Path) -> dict[str, Any]:
        """The content of one of the run's JSON files."""
        remedy = f"move {self.path} away and start the run again"
        if not file.is_file():
            if self.status() == "finished":
                raise DamagedRun(f"{file} is missing: {remedy}")
            raise FileNotFoundError(f"{file} does not exist yet: the run in {self.path} is not finished")
        try:
            content = read_file(file, _KINDS.get(file.name, dict[str, Any]))
        except DamagedFile as error:
            raise DamagedRun(f"{error}: {remedy}") from error
        if file == self.config:
            content.setdefault("checkpoint_share", CHECKPOINT_SHARE)
        return content


def make_default_folder(method: str, dataset: str, seed: int) -> RunFolder:
    """A new folder `runs/METHOD-DATASET-seedN`, followed by a number if that is taken."""
    name, number = f"{method}-{dataset}-seed{seed}", 1
    Path("runs").mkdir(exist_ok=True)
    while True:
        path = Path("runs") / (name if number == 1 else f"{name}-{number}")
        try:
            path.mkdir()
        except FileExistsError:
            number += 1
        else:
            return RunFolder(path)
