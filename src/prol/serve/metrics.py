"""The service's numbers in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prol.serve.service import Service

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Samples = Iterable[tuple[Mapping[str, str], float]]


def metrics(service: Service) -> str:
    """All families, each with its help and its type."""
    view, journal, records = service.writer.view, service.journal, service.writer.view.records
    images, taken = service.pending.amounts()
    requests = [
        ({"method": method, "route": route, "status": str(status)}, float(count))
        for (method, route, status), count in sorted(journal.requests.copy().items())
    ]
    seconds = [({"route": route}, total) for route, total in sorted(journal.request_seconds.copy().items())]
    refused = [({"code": code}, float(count)) for code, count in sorted(journal.refused.copy().items())]
    families: list[tuple[str, str, str, Samples]] = [
        ("requests_total", "counter", "Requests answered.", requests),
        ("request_seconds_total", "counter", "Time spent on requests.", seconds),
        ("refused_total", "counter", "Requests refused, by the code of the error.", refused),
        ("version", "gauge", "The number of the last durable commit.", _one(view.version)),
        ("snapshot_version", "gauge", "The commit that answers.", _one(service.writer.publisher.current.version)),
        ("classes", "gauge", "Classes known.", _one(len(view.classes))),
        ("images_learnt_total", "counter", "Images learnt since the learner began.", _one(records.images_learnt)),
        ("images_predicted_total", "counter", "Images predicted since the start.", _one(journal.predicted.total)),
        ("late_labels_total", "counter", "Predictions whose label came later.", _one(records.answered)),
        ("late_labels_correct_total", "counter", "Of them, predictions that were right.", _one(records.correct)),
        ("commits_total", "counter", "Commits since the start.", _one(journal.commits)),
        ("commit_seconds_total", "counter", "Time spent on them.", _one(journal.commit_seconds)),
        ("commit_failures_total", "counter", "Commits that failed and were taken back.", _one(journal.failed_commits)),
        ("snapshot_failures_total", "counter", "Snapshots that failed.", _one(journal.failed_snapshots)),
        ("queue_waiting", "gauge", "Requests that wait to be learnt.", _one(len(service.writer.line))),
        ("queue_limit", "gauge", "How many may wait.", _one(service.writer.line.limit)),
        ("pending_images", "gauge", "Images that wait for a late label.", _one(images)),
        ("pending_bytes", "gauge", "Memory they take.", _one(taken)),
    ]
    return "".join(_family(*family) for family in families)


def _one(value: float) -> Samples:
    return [({}, float(value))]


def _family(name: str, kind: str, text: str, samples: Samples) -> str:
    lines = [f"# HELP prol_{name} {text}", f"# TYPE prol_{name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(given)}"' for label, given in labels.items())
        lines.append(f"prol_{name}{f'{{{inside}}}' if inside else ''} {value:.15g}")
    return "\n".join(lines) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
