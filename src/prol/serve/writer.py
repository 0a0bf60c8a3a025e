"""The one thread that changes the learner: applies a group of jobs, commits it, and only then answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from prol.labels import Label
from prol.learner import Footprint, State
from prol.runs.saving import saved_sha256
from prol.serve.jobs import Job
from prol.serve.journal import Journal
from prol.serve.observing import Calibrator
from prol.serve.opening import Opened
from prol.serve.records import Records
from prol.serve.refusals import Refusal, not_written
from prol.serve.round import Outcome, Round, UnforeseenError, undo
from prol.serve.snapshots import Publisher, Snapshot, Turns
from prol.serve.store import Store, about
from prol.serve.waiting_line import WaitingLine

MOST_OPERATIONS = 100
"""Changes of classes that checkpoints carry along before the saved learner gets them."""


@dataclass(frozen=True)
class View:
    """What is durable, for whoever asks about it without asking the learner."""

    version: int
    classes: tuple[Label, ...]
    counts: tuple[int, ...] | None
    footprint: Footprint
    records: Records


class Writer:
    """Owns the learner. What it could not commit it takes back."""

    def __init__(self, store: Store, opened: Opened, line: WaitingLine, journal: Journal, most_keys: int) -> None:
        learner, records, version = opened.learner, opened.records, opened.version
        self.line, self.turns = line, Turns(learner.backbone.device.type)
        self._store, self._learner, self._journal, self._most_keys = store, learner, journal, most_keys
        self._about, self._number = about(learner), version
        self._durable: State = learner.state()
        self._unsure = False
        """Whether the learner may be in another state than the last committed one."""
        self.view = self._look(version, records)
        first = Snapshot(version, learner, self._durable, records.novelty)
        self.publisher = Publisher(first, self.turns, self._snapshot_failed)
        self._calibrator = Calibrator(records.novelty, lambda: self.publisher.current)
        self._thread = threading.Thread(target=self._work, name="prol-writer", daemon=True)

    def start(self) -> None:
        self._write_out()
        self.publisher.start()
        self._thread.start()

    def finish(self) -> None:
        """Does what is in the line, then stops."""
        self.line.close()
        self._thread.join()
        self.publisher.stop()

    def save(self) -> None:
        """Writes the saved learner; its hash is committed first, so that a start after a crash knows it as its own."""

        def announce(sha256: str) -> None:
            records = self.view.records.copy()
            present = saved_sha256(self._store.folder)
            records.artifact = [known for known in (present, sha256) if known is not None]
            self._commit(records)

        if self._unsure:
            self._go_back([])
        self._store.save(self._learner, announce, self.view.records.operations)

    def _work(self) -> None:
        while group := self.line.take():
            began = time.monotonic()
            # Whoever is not there any more, because the server was told to stop at once, has heard nothing of it.
            present = [job for job in group if job.done.set_running_or_notify_cancel()]
            try:
                with self.turns.take():
                    outcomes = self._serve(present)
            except Exception as error:  # the thread must live on, or nobody would ever be answered again
                self._unsure, outcomes = True, dict.fromkeys(present, _internal(error))
            for job, outcome in outcomes.items():
                self._answer(job, outcome)
            self.line.seconds_a_group = time.monotonic() - began

    def _serve(self, group: list[Job]) -> dict[Job, Outcome]:
        """An outcome for each job. After a failure that nobody foresaw, the others are tried again without that one."""
        if self._unsure:
            self._go_back([])
        failed: dict[Job, Outcome] = {}
        while True:
            todo = [job for job in group if job not in failed]
            attempt = Round(self._learner, self.view.records, self._calibrator)
            try:
                for job in todo:
                    attempt.take(job)
                break
            except UnforeseenError as unforeseen:
                failed[unforeseen.job] = _internal(unforeseen.__cause__)
                self._go_back(todo)
        if not attempt.applied:
            return attempt.outcomes() | failed
        try:
            attempt.finish(self._number + 1, len(self._learner.classes), self._most_keys)
            attempt.records.novelty = self._calibrator.state()
            self._commit(attempt.records)
        except Exception as error:  # whatever hindered the commit: nothing was acknowledged
            self._journal.failed_commits += 1
            self._go_back(todo)
            return attempt.outcomes(not_written(error)) | failed
        for job in attempt.applied:
            job.committed()
            self._journal.note(*job.event())
            self._journal.learnt.add(job.images)
        self._write_out()
        return attempt.outcomes() | failed

    def _write_out(self) -> None:
        """If a class was removed, the saved learner becomes the present one and older checkpoints go: it is in neither.

        What fails here is tried again after each commit and at the next start. The last commit says that it is done,
        and is the second one that does not know the class any more.
        """
        records = self.view.records
        if not records.to_write_out and len(records.operations) < MOST_OPERATIONS:
            return
        try:
            self.save()
            self._store.checkpoints.drop_before(self.view.version)
            done = self.view.records.copy()
            done.operations, done.to_write_out = [], False
            self._commit(done)
        except Exception as error:
            self._journal.failed_commits += 1
            logging.getLogger("prol").error("a removed class is still in older files", exc_info=error)

    def _commit(self, records: Records) -> None:
        """Makes what the learner is now durable, under a number that was never tried before, and publishes it."""
        began = time.monotonic()
        self._number += 1
        number, state = self._number, self._learner.state()
        self._store.commit(number, self._about, state, records)
        self._durable, self.view = state, self._look(number, records)
        self._journal.count_commit(time.monotonic() - began)
        self.publisher.offer(lambda: Snapshot(number, self._learner, state, records.novelty))

    def _go_back(self, jobs: Sequence[Job]) -> None:
        self._learner.load_state(*self._durable)
        self._calibrator.go_back(self.view.records.novelty)
        undo(jobs)
        self._unsure = False

    def _look(self, version: int, records: Records) -> View:
        counted = self._learner.class_counts()
        counts = None if counted is None else tuple(round(count) for count in counted.tolist())
        return View(version, tuple(self._learner.classes), counts, self._learner.footprint(), records)

    def _answer(self, job: Job, outcome: Outcome) -> None:
        if isinstance(outcome, Refusal):
            job.done.set_exception(outcome)
        else:
            job.done.set_result(outcome)

    def _snapshot_failed(self, error: Exception) -> None:
        self._journal.failed_snapshots += 1
        logging.getLogger("prol").error("no snapshot could be made: predictions stay as they are", exc_info=error)


def _internal(error: BaseException | None) -> Refusal:
    logging.getLogger("prol").error("a request has failed", exc_info=error)
    message = "Something went wrong that should not have, and nothing of this was learnt: the log says more."
    return Refusal(500, "internal", message)
