"""The audit of a folder: of its learner, and of all its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from prol.files import current_folder
from prol.runs.export import learner_of
from prol.runs.folder import RunFolder
from prol.runs.loading import load
from prol.testing.audit import audit_learner

_FILES = {
    "*model.safetensors": "what was learnt",
    "*meta.json": "class names, options, counts",
    "*README.md": "the model card, with class names",
    "*operations.jsonl": "what was done to classes, without the names of those gone",
    "service/*": "of a service: its checkpoints are whole learners, also of before a class was removed",
    "checkpoint/*": "a whole learner of an earlier moment",
    "events.jsonl": "the log: losses, accuracies and class names, no image",
    "config.json": "settings, with the folder of the data",
    "split.json": "which images of the data set are for testing, by number",
    "stream.json": "which class came when, by number and name",
    "result.json": "what was measured",
    "steps.json": "times",
    "timing.json": "times",
    "tensorboard/*": "of a tracker: losses, accuracies and settings, no image",
    "wandb/*": "of a tracker: losses, accuracies and settings, no image",
    "mlflow/*": "of a tracker: losses, accuracies and settings, no image",
    "trackers/*": "under which name a tracker knows the run, and how far it has come there",
    ".lock": "nothing; excludes other processes",
}


def audit_folder(
    folder: str | Path,
    warn: Callable[[str], None],
    backbone: str | None = None,
    device: str = "auto",
    few: int = 5,
    images: int = 32,
) -> dict[str, Any]:
    """The audit of a saved learner or of a run, as JSON."""
    place = Path(folder).resolve()
    run = RunFolder(place)
    if run.config.is_file():
        learner, _, _ = learner_of(run, run.read(run.config), warn, backbone, device)
    else:
        place = current_folder(place)
        learner = load(folder, backbone, device=device)
    audit = audit_learner(learner, few, images)
    content = asdict(audit) | {"few_below": few, "keeps_no_samples": audit.keeps_no_samples()}
    return content | {"files": stored_files(place)}


def stored_files(place: Path) -> list[dict[str, Any]]:
    """Every file under a folder: its name, its size, and its content if prol wrote it."""
    found = sorted(path for path in place.rglob("*") if path.is_file())
    named = [(path.relative_to(place).as_posix(), path.stat().st_size) for path in found]
    return [{"name": name, "bytes": size, "holds": _holds(name)} for name, size in named]


def _holds(name: str) -> str:
    return next((holds for pattern, holds in _FILES.items() if fnmatchcase(name, pattern)), "not known to prol: look")
