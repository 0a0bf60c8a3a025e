"""Recent activity, in memory only: events and counters, reported as the page's status and as Prometheus metrics."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from prol.serve.service import Service

Kind = Literal["learnt", "predicted", "labelled", "renamed", "removed", "merged", "undone", "exported", "refused"]
Samples = Iterable[tuple[Mapping[str, str], float]]
Family = tuple[str, str, str, Samples | float]
"""A metric: its name, type and help, and its value, or one for each set of labels."""

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_EVENTS = 50
WINDOW_SECONDS = 60.0


class Throughput:
    """A count in total, and per second over the last minute."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._clock, self._began = clock, clock()
        self._recent: deque[tuple[float, int]] = deque()
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.total += count
            # One entry per second, so that a busy minute takes no more memory than a quiet one.
            now = float(int(self._clock()))
            if self._recent and self._recent[-1][0] == now:
                self._recent[-1] = now, self._recent[-1][1] + count
            else:
                self._recent.append((now, count))
            self._drop_old()

    def per_second(self) -> float:
        with self._lock:
            self._drop_old()
            elapsed = min(WINDOW_SECONDS, max(1.0, self._clock() - self._began))
            return sum(count for _, count in self._recent) / elapsed

    def _drop_old(self) -> None:
        while self._recent and self._recent[0][0] < self._clock() - WINDOW_SECONDS:
            self._recent.popleft()


class Activity:
    """Events and counters, written from any thread."""

    def __init__(self) -> None:
        self.learnt, self.predicted = Throughput(), Throughput()
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """Number of requests by method, route and status."""
        self.request_seconds: dict[str, float] = {}
        """Seconds spent on requests by route."""
        self.refused: Counter[str] = Counter()
        """Number of refused requests by error code."""
        self.commits = self.failed_commits = self.failed_snapshots = 0
        self.commit_seconds = 0.0
        self._events: deque[dict[str, str]] = deque(maxlen=MAX_EVENTS)
        self._predicted_in_row = 0
        self._lock = threading.Lock()

    def add_event(self, kind: Kind, text: str) -> None:
        with self._lock:
            self._events.appendleft(_event(kind, text))

    def add_predicted(self, images: int) -> None:
        """One event for predictions that follow each other: a page repeats its own after each update."""
        self.predicted.add(images)
        with self._lock:
            if self._events and self._events[0]["kind"] == "predicted":
                self._events.popleft()
            else:
                self._predicted_in_row = 0
            self._predicted_in_row += images
            plural = "" if self._predicted_in_row == 1 else "s"
            self._events.appendleft(_event("predicted", f"{self._predicted_in_row} image{plural}"))

    def count_refusal(self, code: str) -> None:
        with self._lock:
            self.refused[code] += 1

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self.requests[method, route, status] += 1
            self.request_seconds[route] = self.request_seconds.get(route, 0.0) + seconds

    def count_commit(self, seconds: float) -> None:
        with self._lock:
            self.commits += 1
            self.commit_seconds += seconds

    def events(self) -> list[dict[str, Any]]:
        """Newest first."""
        with self._lock:
            return list(self._events)


def _event(kind: Kind, text: str) -> dict[str, str]:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {"time": now, "kind": kind, "text": text}


def status(service: Service) -> dict[str, Any]:
    """Everything the page shows."""
    committed, activity = service.writer.committed, service.activity
    records, footprint = committed.records, committed.footprint
    images, size = service.pending.amounts()
    return {
        "method": service.method,
        "backbone": service.backbone,
        "version": committed.version,
        "snapshot_version": service.writer.publisher.current.version,
        "undo_images": committed.undo_images,
        "classes": len(committed.classes),
        "images_learnt": records.images_learnt,
        "prequential": {
            "answered": records.answered,
            "correct": records.correct,
            "recent": [{"images": count, "accuracy": right / count} for count, right in records.recent],
        },
        "throughput": {
            "learn_images_per_second": round(activity.learnt.per_second(), 3),
            "predict_images_per_second": round(activity.predicted.per_second(), 3),
        },
        "memory": {
            "samples_kept": footprint.samples_stored.count,
            "statistics_bytes": footprint.statistics_stored.bytes,
            "parameters_bytes": footprint.parameters_stored.bytes,
            "pending_images": images,
            "pending_bytes": size,
            "pending_seconds": service.limits.pending_seconds,
        },
        "queue": {"waiting": len(service.writer.queue), "limit": service.writer.queue.limit},
        "events": activity.events(),
        "limits": dataclasses.asdict(service.limits),
    }


def of_requests(activity: Activity) -> list[Family]:
    """Counts of requests, by route and by what became of them."""
    requests: Samples = [
        ({"method": method, "route": route, "status": str(status)}, count)
        for (method, route, status), count in sorted(activity.requests.copy().items())
    ]
    seconds: Samples = [({"route": route}, total) for route, total in sorted(activity.request_seconds.copy().items())]
    refused: Samples = [({"code": code}, count) for code, count in sorted(activity.refused.copy().items())]
    return [
        ("requests_total", "counter", "Requests answered.", requests),
        ("request_seconds_total", "counter", "Time spent on requests.", seconds),
        ("refused_total", "counter", "Requests refused, by error code.", refused),
    ]


def metrics(service: Service) -> str:
    """All metrics in Prometheus' text format, each with its help and its type."""
    committed, activity, records = service.writer.committed, service.activity, service.writer.committed.records
    images, size = service.pending.amounts()
    snapshot, queue = service.writer.publisher.current, service.writer.queue
    families: list[Family] = [
        *of_requests(activity),
        ("version", "gauge", "Number of the last durable commit.", committed.version),
        ("snapshot_version", "gauge", "Commit that predictions are computed from.", snapshot.version),
        ("classes", "gauge", "Known classes.", len(committed.classes)),
        ("images_learnt_total", "counter", "Images learnt since the learner was created.", records.images_learnt),
        ("images_predicted_total", "counter", "Images predicted since the start.", activity.predicted.total),
        ("late_labels_total", "counter", "Predictions that were labelled later.", records.answered),
        ("late_labels_correct_total", "counter", "Correct predictions among them.", records.correct),
        ("commits_total", "counter", "Commits since the start.", activity.commits),
        ("commit_seconds_total", "counter", "Time spent on commits.", activity.commit_seconds),
        ("commit_failures_total", "counter", "Commits that failed and were rolled back.", activity.failed_commits),
        ("snapshot_failures_total", "counter", "Snapshots that failed.", activity.failed_snapshots),
        ("queue_waiting", "gauge", "Requests that wait to be learnt.", len(queue)),
        ("queue_limit", "gauge", "Requests that may wait at most.", queue.limit),
        ("pending_images", "gauge", "Images that wait for a late label.", images),
        ("pending_bytes", "gauge", "Memory of these images.", size),
    ]
    return "".join(family(*one) for one in families)


def family(name: str, kind: str, text: str, values: Samples | float) -> str:
    lines = [f"# HELP prol_{name} {text}", f"# TYPE prol_{name} {kind}"]
    for labels, value in [({}, values)] if isinstance(values, int | float) else values:
        inside = ",".join(f'{label}="{_escaped(given)}"' for label, given in labels.items())
        lines.append(f"prol_{name}{f'{{{inside}}}' if inside else ''} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
