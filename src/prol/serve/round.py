"""One group of jobs, applied together and not yet committed."""

from __future__ import annotations

from collections.abc import Sequence

from prol.learner import Learner
from prol.serve.jobs import Answer, Desk, Job, Observer
from prol.serve.records import Records
from prol.serve.refusals import Refusal

Outcome = Answer | Refusal


class UnforeseenError(Exception):
    """A job has failed in a way that may have left anything behind."""

    def __init__(self, job: Job) -> None:
        super().__init__("a job has failed")
        self.job = job


class Round:
    """What has become of each job so far.

    `settled` holds whatever stands: requests that were answered before. All the rest is worth nothing until the group
    is committed, refusals too, since they were judged by what may have to be taken back.
    """

    def __init__(self, learner: Learner, durable: Records, observer: Observer) -> None:
        self.records = durable.copy()
        self.settled: dict[Job, Outcome] = {}
        self.applied: dict[Job, Answer] = {}
        self._refused: dict[Job, Refusal] = {}
        self._followers: dict[Job, Job] = {}
        self._durable, self._leaders = durable, dict[str, Job]()
        self._desk = Desk(learner, self.records, observer)

    def take(self, job: Job) -> None:
        """Applies a job unless it was done before, in another group or in this one."""
        key = job.key
        if key is not None and key.name in self._durable.answers:
            content, answer = self._durable.answers[key.name]
            self.settled[job] = answer | {"repeated": True} if content == key.content else _reused()
        elif key is not None and key.name in self._leaders:
            leader = self._leaders[key.name]
            if leader.key == key:
                self._followers[job] = leader
            else:
                self._refused[job] = _reused()
        else:
            self._apply(job)

    def finish(self, version: int, classes: int, most_keys: int) -> None:
        """Completes the answers and has the records remember them; the commit comes next."""
        for job, answer in self.applied.items():
            answer |= {"version": version, "classes": classes}
            if job.key is not None:
                self.records.remember(job.key, answer, most_keys)

    def outcomes(self, failure: Refusal | None = None) -> dict[Job, Outcome]:
        """What each job is told, or that the commit has failed."""
        repeats: dict[Job, Outcome] = {}
        for job, leader in self._followers.items():
            repeats[job] = self.applied[leader] | {"repeated": True}
        unsettled: dict[Job, Outcome] = {**self.applied, **self._refused, **repeats}
        return self.settled | (unsettled if failure is None else dict.fromkeys(unsettled, failure))

    def _apply(self, job: Job) -> None:
        try:
            self.applied[job] = job.apply(self._desk)
        except Refusal as refusal:
            self._refuse(job, refusal)
        except ValueError as error:
            self._refuse(job, Refusal(422, "not_learnt", f"{_sentence(error)} Nothing of it was learnt."))
        except Exception as error:
            raise UnforeseenError(job) from error
        else:
            if job.key is not None:
                self._leaders[job.key.name] = job

    def _refuse(self, job: Job, refusal: Refusal) -> None:
        job.undo()
        self._refused[job] = refusal


def undo(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job.undo()


def _reused() -> Refusal:
    message = "This idempotency key was used for another content: choose a new key for a new request."
    return Refusal(409, "key_reused", message)


def _sentence(error: ValueError) -> str:
    said = " ".join(str(error).split()) or "It cannot be done."
    return f"{said[0].upper()}{said[1:].rstrip('.')}."
