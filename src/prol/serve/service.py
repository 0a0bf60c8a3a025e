"""The service behind the routes: what can be asked of it, in Python terms."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from prol.answers import Answer as Ranked
from prol.labels import Label
from prol.serve.budget import Budget, Share
from prol.serve.class_jobs import Merge, Remove, Rename
from prol.serve.intake import decode_images, read_images
from prol.serve.jobs import Answer, Job
from prol.serve.journal import Journal
from prol.serve.learning_jobs import LateLabels, Learn
from prol.serve.naming import form_flag, form_labels
from prol.serve.opening import Opened
from prol.serve.pending import Pending, Waiting
from prol.serve.records import Key, digest, labels_digest
from prol.serve.settings import Limits
from prol.serve.store import Store
from prol.serve.waiting_line import WaitingLine
from prol.serve.writer import Writer

THREADS = 2
"""That predict, and as many that decode lessons: more would take processors from learning, and memory for images."""


class Service:
    """Learns through the writer, predicts on snapshots, and remembers what waits for a label."""

    def __init__(self, store: Store, opened: Opened, limits: Limits, budget: Budget, journal: Journal) -> None:
        self.limits, self.journal = limits, journal
        self.method, self.backbone = opened.learner.name, opened.learner.backbone.name.partition("@")[0]
        self.pending = Pending(limits.pending_images, limits.pending_bytes, limits.pending_seconds)
        self.writer = Writer(store, opened, WaitingLine(limits.queue), journal, limits.keys)
        self._budget = budget
        # Two pools, so that nobody who asks waits behind lessons that are being decoded.
        self._asking = ThreadPoolExecutor(THREADS, thread_name_prefix="prol-predict")
        self._reading = ThreadPoolExecutor(THREADS, thread_name_prefix="prol-read")

    def start(self) -> None:
        self.writer.start()

    def finish(self) -> None:
        """Does what waits, then writes the saved learner."""
        self.writer.finish()
        self._asking.shutdown()
        self._reading.shutdown()
        self.writer.save()

    async def learn(self, body: bytes, content_type: str | None, key: str | None) -> Answer:
        share = Share(self._budget)
        try:
            read = partial(self._read_lesson, body, content_type, key, share)
            return await self._written(await asyncio.get_running_loop().run_in_executor(self._reading, read))
        finally:
            share.end()

    async def late_labels(self, ids: Sequence[str], labels: Sequence[Label], key: str | None) -> Answer:
        content = digest(b"labels", labels_digest(ids), labels_digest(labels))
        share = Share(self._budget)
        known = None if key is None else Key.of(key, content)
        job = LateLabels(ids, labels, self.pending, known, self.limits, share)
        try:
            return job.with_ids(await self._written(job))
        finally:
            share.end()

    async def predict(self, body: bytes, content_type: str | None, top: int) -> dict[str, Any]:
        share = Share(self._budget)
        try:
            predict = partial(self._predict, body, content_type, top, share)
            return await asyncio.get_running_loop().run_in_executor(self._asking, predict)
        finally:
            share.end()

    async def rename(self, old: Label, new: Label) -> Answer:
        return await self._written(Rename(old, new, self.pending))

    async def merge(self, source: Label, into: Label) -> Answer:
        return await self._written(Merge(source, into, self.pending))

    async def remove(self, name: Label) -> Answer:
        return await self._written(Remove(name))

    async def _written(self, job: Job) -> Answer:
        self.writer.line.add(job)
        return await asyncio.wrap_future(job.done)

    def _read_lesson(self, body: bytes, content_type: str | None, key: str | None, share: Share) -> Learn:
        form = read_images(body, content_type, self.limits, fields=("labels", "integers"))
        files = form.files["images"]
        integers = form_flag(form.texts.get("integers", []), "integers")
        labels = form_labels(form.texts.get("labels", []), integers, len(files))
        content = digest(b"learn", labels_digest(labels), *files)
        pictures = decode_images(files, self.limits, share)
        return Learn(pictures, labels, None if key is None else Key.of(key, content))

    def _predict(self, body: bytes, content_type: str | None, top: int, share: Share) -> dict[str, Any]:
        files = read_images(body, content_type, self.limits).files["images"]
        pictures = decode_images(files, self.limits, share)
        snapshot = self.writer.publisher.current
        with self.writer.turns.take():
            told = snapshot.ask(pictures, top)
        waiting = [
            Waiting(data, one.answers[0].label if one.answers else None, one.familiarity, snapshot.classes)
            for data, one in zip(files, told, strict=True)
        ]
        ids = self.pending.add(waiting)
        self.journal.predicted.add(len(files))
        self.journal.note("predicted", f"{len(files)} image{'' if len(files) == 1 else 's'}")
        return {
            "version": snapshot.version,
            "expires_in": self.limits.pending_seconds,
            "predictions": [
                {"id": name, "labels": [_ranked(answer) for answer in one.answers], "unknown": one.unknown}
                for name, one in zip(ids, told, strict=True)
            ],
        }


def _ranked(answer: Ranked) -> dict[str, Any]:
    return {"label": answer.label, "score": answer.score, "probability": answer.probability}
