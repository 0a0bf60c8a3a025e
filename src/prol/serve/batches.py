"""The queue in which jobs wait for the writer, and the batch of jobs that it applies and commits together."""

from __future__ import annotations

import threading
from collections import deque

from prol.learner import Learner
from prol.serve.errors import RequestError, stopping
from prol.serve.jobs import Job, LastChunk, Result, WriteContext
from prol.serve.records import Records

MAX_IMAGES = 1024
"""Images of a batch at most, unless one job alone has more: its first jobs should not wait long for their response."""

Outcome = Result | RequestError


class JobQueue:
    """A bounded queue of jobs, emptied in batches."""

    def __init__(self, limit: int, batch_images: int = MAX_IMAGES) -> None:
        self.limit, self.batch_images = limit, batch_images
        self.batch_seconds = 1.0
        """How long the last batch took, for `Retry-After`."""
        self._jobs: deque[Job] = deque()
        self._closed = False
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        with self._changed:
            if self._closed:
                raise stopping()
            if len(self._jobs) >= self.limit:
                message = f"{self.limit} requests are waiting already: try again later."
                raise RequestError(429, "queue_full", message, retry_after=self.batch_seconds)
            self._jobs.append(job)
            self._changed.notify()

    def take(self, seconds: float | None = None) -> list[Job] | None:
        """Blocks until jobs are there and takes them, up to a limit; None once the queue is closed and drained.

        Empty if none came within so many seconds.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed, seconds)
            if self._closed and not self._jobs:
                return None
            batch: list[Job] = []
            images = 0
            while self._jobs and (not batch or images + self._jobs[0].images <= self.batch_images):
                job = self._jobs.popleft()
                images += job.images
                batch.append(job)
            return batch

    def close(self) -> None:
        """No further job is accepted."""
        with self._changed:
            self._closed = True
            self._changed.notify()


class JobCrash(Exception):
    """A job has failed with an unexpected error, and may have left the learner in any state."""

    def __init__(self, job: Job) -> None:
        super().__init__("a job has failed")
        self.job = job


class Batch:
    """Jobs that are applied but not yet committed, and their outcomes.

    Results replayed from earlier commits are final. All other outcomes depend on the commit, errors included: they were
    decided on a state that may be rolled back.
    """

    def __init__(self, learner: Learner, durable: Records, last: LastChunk) -> None:
        self.records = durable.copy()
        self.applied: dict[Job, Result] = {}
        self._context, self._durable = WriteContext(learner, self.records, last), durable
        self._replayed: dict[Job, Outcome] = {}
        self._refused: dict[Job, RequestError] = {}
        self._first_of_key: dict[str, Job] = {}
        self._repeats: dict[Job, Job] = {}

    def add(self, job: Job) -> None:
        """Applies a job, unless its idempotency key says that this was done before, in this batch or earlier."""
        key = job.key
        if key is not None and key.name in self._durable.answers:
            content, result = self._durable.answers[key.name]
            self._replayed[job] = result | {"repeated": True} if content == key.content else _key_reused()
        elif key is not None and key.name in self._first_of_key:
            first = self._first_of_key[key.name]
            if first.key == key:
                self._repeats[job] = first
            else:
                self._refused[job] = _key_reused()
        else:
            self._apply(job)

    @property
    def only_learns(self) -> bool:
        """Whether a journal may hold it: after other changes, names and chunks must be in no older entry."""
        return all(job.only_learns for job in self.applied)

    def complete(self, version: int, max_keys: int) -> None:
        """Completes the results and adds them to the records, which are committed next."""
        for job, result in self.applied.items():
            result |= {"version": version, "classes": len(self._context.learner.classes)}
            if job.key is not None:
                self.records.remember(job.key, result, max_keys)

    def outcomes(self, failure: RequestError | None = None) -> dict[Job, Outcome]:
        """The outcome of each job; `failure` is why the commit failed."""
        repeats: dict[Job, Outcome] = {
            job: self.applied[first] | {"repeated": True} for job, first in self._repeats.items()
        }
        dependent: dict[Job, Outcome] = {**self.applied, **self._refused, **repeats}
        return self._replayed | (dependent if failure is None else dict.fromkeys(dependent, failure))

    def _apply(self, job: Job) -> None:
        try:
            self.applied[job] = job.apply(self._context)
        except RequestError as error:
            self._refuse(job, error)
        except ValueError as error:
            self._refuse(job, RequestError(422, "not_learnt", f"{_sentence(error)} Nothing of it was learnt."))
        except Exception as error:
            raise JobCrash(job) from error
        else:
            if job.key is not None:
                self._first_of_key[job.key.name] = job

    def _refuse(self, job: Job, error: RequestError) -> None:
        job.roll_back()
        self._refused[job] = error


def _key_reused() -> RequestError:
    message = "This idempotency key was used with other content: choose a new key for a new request."
    return RequestError(409, "key_reused", message)


def _sentence(error: ValueError) -> str:
    text = " ".join(str(error).split()) or "It cannot be done."
    return f"{text[0].upper()}{text[1:].rstrip('.')}."
