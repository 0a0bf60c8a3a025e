"""The service behind the routes: it decodes in threads, learns through the writer, predicts from snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from prol.classes import Label
from prol.serve.batches import JobQueue
from prol.serve.errors import RequestError, starting, stopping
from prol.serve.exports import Download, Exporter, Form
from prol.serve.jobs import Job, LateLabels, Learn, Result, Undo
from prol.serve.monitoring import Activity
from prol.serve.pending import Pending, PendingImage
from prol.serve.records import Key, digest, labels_digest
from prol.serve.settings import Limits
from prol.serve.snapshots import ImagePrediction
from prol.serve.store import Opened, Store
from prol.serve.uploads import MemoryBudget, Pixels, Reservation, decode_images, read_form, read_labels
from prol.serve.workers import Workers
from prol.serve.writer import Writer


class Service:
    """One learner that is served, with everything around it."""

    def __init__(
        self,
        store: Store,
        opened: Opened,
        limits: Limits,
        budget: MemoryBudget,
        activity: Activity,
        workers: Workers,
        pending: Pending | None = None,
    ) -> None:
        self.limits, self.activity = limits, activity
        self.method, self.backbone = opened.learner.name, opened.learner.backbone.name.partition("@")[0]
        self.pending = pending or Pending(limits.pending_images, limits.pending_bytes, limits.pending_seconds)
        self.writer = Writer(
            store, opened, JobQueue(limits.queue, workers.batch_images), activity, limits.keys, workers
        )
        self._exporter = Exporter(store, self.writer, opened.backbone)
        self._budget, self._workers = budget, workers

    def start(self) -> None:
        self.writer.start()

    def stop_exports(self) -> None:
        """Ends a download that is being made: it may take longer than clients are waited for."""
        self._exporter.stop()

    def finish(self) -> None:
        """Commits all waiting jobs, then writes the saved learner."""
        self.writer.finish()
        self.writer.save()

    async def submit(self, job: Job) -> Result:
        """Queues a job and waits until it is committed."""
        self.writer.queue.add(job)
        return await asyncio.wrap_future(job.done)

    async def learn(self, body: bytes, content_type: str | None, key: str | None) -> Result:
        with Reservation(self._budget) as memory:
            run = asyncio.get_running_loop().run_in_executor
            return await self.submit(
                await run(self._workers.decoding, self._read_chunk, body, content_type, key, memory)
            )

    async def late_labels(self, ids: Sequence[str], labels: Sequence[Label], key: str | None) -> Result:
        content = digest(b"labels", labels_digest(ids), labels_digest(labels))
        hashed = None if key is None else Key.of(key, content)
        with Reservation(self._budget) as memory:
            job = LateLabels(ids, labels, self.pending, hashed, self.limits, memory)
            return job.with_ids(await self.submit(job))

    async def undo(self, key: str | None) -> Result:
        return await self.submit(Undo(None if key is None else Key.of(key, digest(b"undo"))))

    async def predict(self, body: bytes, content_type: str | None, top: int) -> dict[str, Any]:
        with Reservation(self._budget) as memory:
            run = asyncio.get_running_loop().run_in_executor
            return await run(self._workers.predicting, self._predict, body, content_type, top, memory)

    async def predict_again(self, ids: Sequence[str], top: int) -> dict[str, Any]:
        with Reservation(self._budget) as memory:
            run = asyncio.get_running_loop().run_in_executor
            return await run(self._workers.predicting, self._predict_again, ids, top, memory)

    async def export(self, form: Form) -> Download:
        made = await asyncio.get_running_loop().run_in_executor(self._workers.exporting, self._exporter.make, form)
        self.activity.add_event("exported", made.name)
        return made

    def _read_chunk(self, body: bytes, content_type: str | None, key: str | None, memory: Reservation) -> Learn:
        form = read_form(body, content_type, self.limits, fields=("labels", "integers"))
        files, labels = form.files["images"], read_labels(form)
        content = digest(b"learn", labels_digest(labels), *files)
        pictures = decode_images(files, self.limits, memory)
        return Learn(pictures, labels, None if key is None else Key.of(key, content))

    def _predict(self, body: bytes, content_type: str | None, top: int, memory: Reservation) -> dict[str, Any]:
        files = read_form(body, content_type, self.limits).files["images"]
        pictures = decode_images(files, self.limits, memory)
        version, predictions = self._predict_pictures(pictures, top)
        ids = self.pending.add(
            [PendingImage(data, one.best) for data, one in zip(files, predictions, strict=True)],
        )
        shown = [_shown(name, one) for name, one in zip(ids, predictions, strict=True)]
        return {"version": version, "expires_in": self.limits.pending_seconds, "predictions": shown}

    def _predict_again(self, ids: Sequence[str], top: int, memory: Reservation) -> dict[str, Any]:
        found = self.pending.look(ids)
        pictures = decode_images([one.data for one in found.values()], self.limits, memory)
        version, predictions = self._predict_pictures(pictures, top)
        by_id = dict(zip(found, predictions, strict=True))
        self.pending.predicted({name: one.best for name, one in by_id.items()})
        shown = [_shown(name, one) for name, one in by_id.items()]
        return {"version": version, "predictions": shown, "unknown_ids": [name for name in ids if name not in found]}

    def _predict_pictures(self, pictures: Sequence[Pixels], top: int) -> tuple[int, list[ImagePrediction]]:
        snapshot = self.writer.publisher.ask()
        if not pictures:
            return snapshot.version, []
        with self.writer.device_lock:
            predictions = snapshot.predict(pictures, top)
        self.activity.add_predicted(len(pictures))
        return snapshot.version, predictions


def _shown(name: str, one: ImagePrediction) -> dict[str, Any]:
    labels = [{"label": best.label, "score": best.score, "probability": best.probability} for best in one.labels]
    return {"id": name, "labels": labels, "unknown": one.unknown}


class Lifecycle:
    """Whether the service is starting, running or stopping; it exists from the first request on."""

    def __init__(self) -> None:
        self._service: Service | None = None
        self.is_open = self.is_stopping = False

    def opened(self, service: Service | None) -> None:
        self._service, self.is_open = service, True

    @property
    def service(self) -> Service:
        """Raises RequestError unless the service is running."""
        if self._service is None or self.is_stopping:
            raise self.unavailable() or starting()
        return self._service

    def unavailable(self) -> RequestError | None:
        if self.is_stopping:
            return stopping()
        return None if self.is_open else starting()
