"""The line in which jobs wait for the writer: so long and no longer."""

from __future__ import annotations

import threading
from collections import deque

from prol.serve.jobs import Job
from prol.serve.refusals import Refusal, stopping

MOST_IMAGES = 1024
"""Of a group of jobs, unless one alone has more: those at its head should not wait too long for their answer."""


class WaitingLine:
    """Jobs in the order they came, taken in groups."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.seconds_a_group = 1.0
        """How long the last group took, for those who are sent away."""
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
                message = f"{self.limit} requests wait already: try again later."
                raise Refusal(429, "queue_full", message, retry_after=self.seconds_a_group)
            self._jobs.append(job)
            self._changed.notify()

    def take(self) -> list[Job]:
        """All that wait, up to a limit, as soon as there is any; none when the line is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._closed)
            group: list[Job] = []
            images = 0
            while self._jobs and (not group or images + self._jobs[0].images <= MOST_IMAGES):
                job = self._jobs.popleft()
                images += job.images
                group.append(job)
            return group

    def close(self) -> None:
        """Nothing more is taken in."""
        with self._changed:
            self._closed = True
            self._changed.notify()
