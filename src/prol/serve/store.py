"""The folder of a service: a saved learner, and beside it numbered checkpoints of learner and records in one file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from filelock import BaseFileLock

from prol.files import take_lock
from prol.learner import Learner, State
from prol.runs.checkpoints import Checkpoints
from prol.runs.saving import save_into
from prol.serve.records import Records

FORMAT = 1
SERVICE = "service"


@dataclasses.dataclass(frozen=True)
class Recovered:
    """What the newest good checkpoint holds; `about` is what the learner is, besides its state."""

    version: int
    about: dict[str, Any]
    state: State
    records: Records


class Store:
    """Writes and reads one service's checkpoints; holds the lock that keeps another server off."""

    def __init__(self, folder: Path, keep: int) -> None:
        self.folder = folder
        self.place = folder / SERVICE
        self.checkpoints = Checkpoints(self.place, keep)
        self._lock: BaseFileLock | None = None

    def lock(self) -> None:
        """Keeps other servers out; the lock goes with the process, however it ends."""
        if self.place.exists() and not self.place.is_dir():
            raise ValueError(f"{self.place} is not a folder: the service keeps its state there, so move it away")
        self.place.mkdir(parents=True, exist_ok=True)
        try:
            self._lock = take_lock(self.place)
        except ValueError:
            raise ValueError(f"another server is at work in {self.folder}: stop it, or serve a copy") from None

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def recover(self, warn: Callable[[str], None]) -> Recovered | None:
        """The newest good checkpoint. Numbers go on behind the highest there was, though it be damaged."""
        highest = self.checkpoints.newest_number()
        newest = self.checkpoints.read_newest(warn, remove_damaged=False)
        if highest is None:
            return None
        if newest is None:
            raise ValueError(
                f"no checkpoint in {self.place} can be read: put back a copy of one, or move the folder away to begin "
                "with the saved learner, which may lack what was learnt since"
            )
        tensors, content = newest
        if content.get("format") != FORMAT:
            raise ValueError(
                f"{self.place} has format {content.get('format')!r}, this version of prol reads {FORMAT}: "
                "serve it with a matching prol"
            )
        records = Records.from_json(content["records"])
        return Recovered(highest, content["about"], (tensors, content["learner"]), records)

    def commit(self, version: int, about: dict[str, Any], state: State, records: Records) -> None:
        """Returns when all of it is on disk; raises when it is not, and then the checkpoint before it is the newest."""
        content = {"format": FORMAT, "about": about, "learner": state[1], "records": records.to_json()}
        try:
            self.checkpoints.write(version, state[0], content)
        except BaseException:
            self.checkpoints.drop_after(version - 1)
            raise

    def save(
        self, learner: Learner, announce: Callable[[str], None], operations: Sequence[dict[str, Any]] = ()
    ) -> None:
        """Writes the saved learner itself; `announce` commits the hash it is going to have."""
        save_into(learner, self.folder, announce, operations)


def about(learner: Learner) -> dict[str, Any]:
    """What a learner is, besides its state: enough to make it again."""
    return {
        "method": learner.name,
        "options": dataclasses.asdict(learner.options),
        "seed": learner.seed,
        "precision": learner.backbone.precision,
        "backbone": {"name": learner.backbone.name, "sha256": learner.backbone.sha256},
        "preprocessing": dataclasses.asdict(learner.preprocessing),
    }
