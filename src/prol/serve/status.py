"""The service about itself, for its page."""

from __future__ import annotations

import dataclasses
from typing import Any

from prol.serve.service import Service


def status(service: Service) -> dict[str, Any]:
    """Everything the page shows."""
    view, journal = service.writer.view, service.journal
    records, kept = view.records, view.footprint
    images, taken = service.pending.amounts()
    return {
        "method": service.method,
        "backbone": service.backbone,
        "version": view.version,
        "classes": len(view.classes),
        "images_learnt": records.images_learnt,
        "prequential": {
            "answered": records.answered,
            "correct": records.correct,
            "recent": [{"images": count, "accuracy": right / count} for count, right in records.recent],
        },
        "throughput": {
            "learn_images_per_second": round(journal.learnt.per_second(), 3),
            "predict_images_per_second": round(journal.predicted.per_second(), 3),
        },
        "memory": {
            "samples_kept": kept.samples_stored.count,
            "statistics_bytes": kept.statistics_stored.bytes,
            "parameters_bytes": kept.parameters_stored.bytes,
            "pending_images": images,
            "pending_bytes": taken,
            "pending_seconds": service.limits.pending_seconds,
        },
        "queue": {"waiting": len(service.writer.line), "limit": service.writer.line.limit},
        "events": journal.events(),
        "limits": dataclasses.asdict(service.limits),
    }
