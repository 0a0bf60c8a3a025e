"""The writer: the single thread that changes the learner. It applies a batch of jobs, commits it, then responds."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from prol.classes import Label
from prol.learner import Footprint, Learner, SavedState
from prol.runs.format import read_operations
from prol.runs.saving import save, saved_sha256
from prol.serve.batches import Batch, JobCrash, JobQueue, Outcome
from prol.serve.changes import Changes, Update, replayed
from prol.serve.errors import RequestError, not_written
from prol.serve.jobs import Job, LastChunk
from prol.serve.journal import MOST_SECONDS
from prol.serve.monitoring import Activity
from prol.serve.records import Records
from prol.serve.snapshots import Publisher, Snapshot
from prol.serve.store import Opened, Store, describe
from prol.serve.workers import Workers

MAX_OPERATIONS = 100
"""Changes of classes that checkpoints hold before they are written to the saved learner."""

_log = logging.getLogger("prol")


@dataclass(frozen=True)
class Committed:
    """The durable state, for readers that must not touch the learner."""

    version: int
    classes: tuple[Label, ...]
    counts: tuple[int, ...] | None
    footprint: Footprint
    records: Records
    undo_images: int
    """How many images an undo takes back; 0 if there is nothing to undo."""


class Durable:
    """The last committed state, of a `version`: an earlier one, and the updates since, until somebody asks for it."""

    def __init__(self, version: int, state: SavedState) -> None:
        self._version, self._state = version, state
        self._updates: list[tuple[int, Update]] = []
        self._lock = threading.Lock()

    def add(self, version: int, update: Update) -> None:
        """One more commit. It never waits for a replay."""
        self._updates.append((version, update))

    def latest(self, device: torch.device) -> tuple[int, SavedState]:
        """The version and its state, which must not be changed."""
        with self._lock:
            if updates := self._updates[:]:
                self._state = replayed(self._state, [update for _, update in updates], device)
                self._version = updates[-1][0]
                del self._updates[: len(updates)]
            return self._version, self._state


class Writer:
    """Owns the learner. What it cannot commit it rolls back."""

    def __init__(
        self,
        store: Store,
        opened: Opened,
        queue: JobQueue,
        activity: Activity,
        max_keys: int,
        workers: Workers | None = None,
    ) -> None:
        learner, records, version = opened.learner, opened.records, opened.version
        self.queue = queue
        self._device = learner.backbone.device
        self._workers = workers or Workers(self._device)
        self.device_lock = self._workers.device_lock
        self._store, self._learner, self._activity, self._max_keys = store, learner, activity, max_keys
        self._description, self._last_version = describe(learner), version
        self._durable = Durable(version, learner.state())
        self._changes = Changes(learner)
        if store.uses_journal and store.journal.is_open():  # a new service, whose first checkpoint is this state
            self._changes.restart(self._durable.latest(self._device)[1])
        # What was replayed at the start becomes a checkpoint at once.
        replayed_some = version > (store.checkpoints.newest_number() or 0)
        self._checkpoint_at = time.monotonic() if replayed_some else math.inf
        self._written_out = -1 if replayed_some else version
        self._last_chunk = LastChunk()
        _enable_undo(learner)
        self._dirty = self._replaced = False
        """Whether the learner may differ from the last committed state; whether another was put into its folder."""
        self.committed = self._view(version, records)
        self.publisher = Publisher(self._snapshot, self.device_lock, self._snapshot_failed)
        self._thread = threading.Thread(target=self._work, name="prol-writer", daemon=True)

    def start(self) -> None:
        self._erase_removed()
        self.publisher.start()
        self._thread.start()

    def finish(self) -> None:
        """Drains the queue, then stops."""
        self.queue.close()
        self._thread.join()
        self.publisher.stop()

    def _work(self) -> None:
        while (jobs := self.queue.take(self._until_checkpoint())) is not None:
            if self._until_checkpoint() == 0:
                self._checkpoint()
            if not jobs:
                continue
            began = time.monotonic()
            # A forced stop cancels the requests in progress: their clients have received nothing.
            active = [job for job in jobs if job.done.set_running_or_notify_cancel()]
            try:
                with self._workers.learning, self.device_lock:
                    outcomes = self._process(active)
            except Exception as error:  # the thread must live on, or no request would ever be answered again
                self._dirty, outcomes = True, dict.fromkeys(active, _internal(error))
            for job, outcome in outcomes.items():
                if isinstance(outcome, RequestError):
                    job.done.set_exception(outcome)
                else:
                    job.done.set_result(outcome)
            self.queue.batch_seconds = time.monotonic() - began
        if self._checkpoint_at < math.inf:
            self._checkpoint()

    def _process(self, jobs: list[Job]) -> dict[Job, Outcome]:
        """Applies and commits a batch; returns the outcome of each job."""
        if self._dirty:
            self._roll_back([])
        batch, crashed = self._apply(jobs)
        if not batch.applied:
            return batch.outcomes() | crashed
        try:
            batch.complete(self._last_version + 1, self._max_keys)
            self._commit(batch.records, whole=not batch.only_learns)
        except Exception as error:  # nothing was acknowledged
            self._activity.failed_commits += 1
            self._roll_back([job for job in jobs if job not in crashed])
            return batch.outcomes(not_written(error)) | crashed
        for job in batch.applied:
            job.committed()
            self._activity.add_event(*job.event())
            self._activity.learnt.add(job.images)
        self._erase_removed()
        return batch.outcomes() | crashed

    def _apply(self, jobs: list[Job]) -> tuple[Batch, dict[Job, Outcome]]:
        """A batch of all jobs but those that crash: after each of these, the others are applied again."""
        crashed: dict[Job, Outcome] = {}
        while True:
            remaining = [job for job in jobs if job not in crashed]
            batch = Batch(self._learner, self.committed.records, self._last_chunk)
            try:
                for job in remaining:
                    batch.add(job)
                return batch, crashed
            except JobCrash as crash:
                crashed[crash.job] = _internal(crash.__cause__)
                self._roll_back(remaining)

    def _commit(self, records: Records, whole: bool = True) -> None:
        """Makes the learner's present state durable, under a version that was never tried before, and publishes it.

        What has changed is added to the journal, unless that would not be small, or the `whole` state is asked for.
        """
        began = time.monotonic()
        self._last_version += 1
        version, journal = self._last_version, self._store.journal
        committed = self._view(version, records)
        usable = self._store.uses_journal and journal.is_open() and not journal.is_full()
        update = None if whole or not usable else self._changes.update()
        if update is None:
            self._write(version, records)
        else:
            self._store.append(version, update, self.committed.records, records)
            self._durable.add(version, update)
            self._checkpoint_at = began + (journal.seconds_left() or 0.0)
        self.committed = committed
        self._activity.count_commit(time.monotonic() - began)
        self.publisher.offer()

    def _write(self, version: int, records: Records) -> None:
        """Writes a checkpoint of the learner's present state, which replaces the journal."""
        state = self._learner.state()
        self._store.commit(version, self._description, state, records)
        self._durable, self._checkpoint_at = Durable(version, state), math.inf
        if self._store.uses_journal:
            self._changes.restart(state)

    def _until_checkpoint(self) -> float | None:
        """Seconds until the journal must be replaced by a checkpoint; None while there is none."""
        return None if self._checkpoint_at == math.inf else max(0.0, self._checkpoint_at - time.monotonic())

    def _checkpoint(self) -> None:
        """Replaces the journal by a checkpoint of the same version. If this fails it is tried again later."""
        try:
            with self._workers.learning, self.device_lock:
                if self._dirty:
                    self._roll_back([])
                self._write(self.committed.version, self.committed.records)
        except Exception as error:
            self._checkpoint_at = time.monotonic() + MOST_SECONDS
            self._activity.failed_commits += 1
            _log.error("the journal cannot be replaced by a checkpoint", exc_info=error)

    def _roll_back(self, jobs: Sequence[Job]) -> None:
        """Returns to the last committed state."""
        self._changes.stop()
        self._learner.load_state(*self._durable.latest(self._device)[1])
        for job in jobs:
            job.roll_back()
        self._dirty = False

    def save(self) -> None:
        """Writes the saved learner. Its hash is committed first, so that a start after a crash recognises it."""

        def announce(sha256: str) -> None:
            records = self.committed.records.copy()
            present = saved_sha256(self._store.folder)
            records.artifact = [known for known in (present, sha256) if known is not None]
            self._commit(records)

        if self._dirty:
            self._roll_back([])
        if (problem := self._store.replaced(self.committed.records)) is not None:
            raise ValueError(problem)
        self._store.save(self._learner, announce, self.committed.records.operations)
        self._written_out = self.committed.version

    @property
    def has_changed(self) -> bool:
        """Whether anything was committed since the saved learner was written or the service opened."""
        return self.committed.version != self._written_out

    def write_out(self, folder: Path) -> int:
        """Writes the last committed state as a saved learner into another folder; returns its version."""
        operations = [*read_operations(self._store.folder), *self.committed.records.operations]
        like = self._learner
        with self.device_lock:
            version, state = self._durable.latest(self._device)
            learner = type(like)(like.backbone, like.options, like.seed)
            learner.load_state(*state)
        save(learner, folder, operations=tuple(operations))
        return version

    def notice_replacement(self) -> None:
        """Logs, once, that somebody has put another saved learner into the folder."""
        if self._replaced:
            return
        try:
            problem = self._store.replaced(self.committed.records)
        except (OSError, ValueError):  # half of it is copied; what remains of it is seen next time
            return
        if problem is not None:
            self._replaced = True
            _log.error("%s; what the service learns is in %s", problem, self._store.place)
            self._activity.add_event("refused", "The saved learner in the folder was replaced; the service continues.")

    def _erase_removed(self) -> None:
        """After a class was removed, rewrites the saved learner and drops older checkpoints, so that no file holds it.

        If this fails it is tried again after each commit and at the next start. The last commit records that it is
        done, and is the second checkpoint without the class.
        """
        records = self.committed.records
        if not records.to_write_out and len(records.operations) < MAX_OPERATIONS:
            return
        try:
            self.save()
            self._store.checkpoints.drop_before(self.committed.version)
            if self._store.journal.files():
                raise OSError(f"a journal in {self._store.place} cannot be erased")
            done = self.committed.records.copy()
            done.operations, done.to_write_out = [], False
            self._commit(done)
        except Exception as error:
            self._activity.failed_commits += 1
            _log.error("a removed class is still in older files", exc_info=error)

    def _view(self, version: int, records: Records) -> Committed:
        counted = self._learner.class_counts()
        counts = None if counted is None else tuple(round(count) for count in counted.tolist())
        undo_images = self._last_chunk.images if self._learner.undo_record.has_chunk else 0
        classes = tuple(self._learner.classes)
        return Committed(version, classes, counts, self._learner.footprint(), records, undo_images)

    def _snapshot(self, earlier: Snapshot | None) -> Snapshot:
        with self._workers.solving:
            return Snapshot(*self._durable.latest(self._device), self._learner, earlier)

    def _snapshot_failed(self, error: Exception) -> None:
        self._activity.failed_snapshots += 1
        _log.error("no snapshot could be made: predictions stay as they are", exc_info=error)


def _enable_undo(learner: Learner) -> None:
    try:
        learner.enable_undo()
    except ValueError as error:
        _log.warning("POST /undo is off: %s", error)


def _internal(error: BaseException | None) -> RequestError:
    _log.error("a request has failed", exc_info=error)
    message = "An unexpected error occurred, and nothing of this was learnt: the log says more."
    return RequestError(500, "internal", message)
