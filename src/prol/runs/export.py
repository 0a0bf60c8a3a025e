"""The learner of a run: written as a saved learner, and audited together with all files of its folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from prol.files import current_folder, open_regular
from prol.learner import Learner
from prol.runs.checkpoints import Checkpoints, fixed_settings, restore_newest
from prol.runs.folder import RunFolder
from prol.runs.loading import load, open_saved_backbone, saved_kind
from prol.runs.saving import Origin, require_replaceable, save, without_small_classes
from prol.runs.setup import FORMAT
from prol.testing.audit import audit_learner

_FILES = {
    "*model.safetensors": "what was learnt",
    "*meta.json": "class names, options, counts",
    "*README.md": "the model card, with class names",
    "*operations.jsonl": "what was done to classes, without the names of those gone",
    "service/*.journal": "of a service: what each chunk since the last checkpoint has changed",
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
"""What each file of a run or of a saved learner holds."""


def export(
    run: str | Path,
    out: str | Path,
    warn: Callable[[str], None],
    backbone: str | None = None,
    device: str = "auto",
    least_count: int = 0,
    method: str | None = None,
) -> Learner:
    """Writes and returns the learner of a finished run, or of the last undamaged checkpoint of an unfinished one.

    Args:
        backbone: the current name of the run's weights, if it has changed.
        least_count: classes of fewer images are omitted.
        method: `FILE.py:Class`, for a method in a file.
    """
    folder, out = RunFolder(run), Path(out).resolve()
    folder.require_run()
    require_replaceable(out)
    config = folder.read(folder.config)
    if config["format"] != FORMAT:
        raise ValueError(f"{folder.path} has run format {config['format']}, not {FORMAT}: export it with its own prol")
    learner, known, ended = learner_of(folder, config, warn, backbone, device, method)
    result = folder.read(folder.result) if known is None else None
    origin = Origin(
        precision=config["precision"],
        versions=config["versions"],
        images=_images_learnt(folder.events, known),
        run=_described(config, result, ended),
    )
    learner, left_out = without_small_classes(learner, least_count)
    save(learner, out, replace(origin, left_out=left_out))
    return learner


def learner_of(
    folder: RunFolder,
    config: Mapping[str, Any],
    warn: Callable[[str], None],
    backbone: str | None,
    device: str,
    method: str | None = None,
) -> tuple[Learner, int | None, int]:
    """The learner of a run, the log's length at its checkpoint (None at the end), and the number of tasks ended."""
    if folder.status() == "finished":
        if not folder.model.is_dir():
            raise FileNotFoundError(f"{folder.path} has no model/: its learner was not stored, so run it again")
        return load(folder.model, backbone, device=device, method=method), None, config["protocol"]["tasks"]
    with folder.locked():
        kind = saved_kind(config, method, folder.path)
        opened = open_saved_backbone(config, folder.path, backbone, device=device)
        learner = kind(opened, kind.read_options(config["options"]), config["seed"])
        cursor, _, offset = restore_newest(Checkpoints(folder.checkpoints), learner, fixed_settings(config), warn)
    if not cursor.chunks:
        raise ValueError(f"{folder.path} has no checkpoint yet: continue with `prol resume {folder.path}` first")
    return learner, offset, cursor.tasks_evaluated


def _images_learnt(events: Path, known: int | None) -> int:
    """Images of all steps in the log, or in its first `known` bytes: the rest belongs to lost work."""
    total = 0
    with open_regular(events) as log:
        for line in log:
            event = json.loads(line)
            if event["event"] == "ChunkLearnt":
                total += event["images"]
            if known is not None and log.tell() >= known:
                break
    return total


def _described(config: Mapping[str, Any], result: Mapping[str, Any] | None, tasks_ended: int) -> dict[str, Any]:
    """Data, protocol and results. Folders of this machine are private, and omitted."""
    public = ("name", "classes", "train_images", "development", "limit_per_class", "labels_sha256", "licence")
    measured = None
    if result is not None:
        measured = {name: result["metrics"][name] for name in ("faa", "caa", "forgetting")}
        measured |= {"test_images": sum(result["test_sizes"])}
    return {
        "dataset": {name: config["dataset"][name] for name in public},
        "protocol": config["protocol"],
        "seed": config["seed"],
        "told": {name: value for name, value in config["told"].items() if isinstance(value, bool)},
        "clock": config["clock"],
        "finished": result is not None,
        "tasks_ended": tasks_ended,
        "result": measured,
    }


def audit_folder(
    folder: str | Path,
    warn: Callable[[str], None],
    backbone: str | None = None,
    device: str = "auto",
    few: int = 5,
    images: int = 32,
    method: str | None = None,
) -> dict[str, Any]:
    """The audit of a saved learner or of a run, as JSON."""
    place = Path(folder).resolve()
    run = RunFolder(place)
    if run.config.is_file():
        learner, _, _ = learner_of(run, run.read(run.config), warn, backbone, device, method)
    else:
        place = current_folder(place)
        learner = load(folder, backbone, device=device, method=method)
    audit = audit_learner(learner, few, images)
    content = asdict(audit) | {"few_below": few, "keeps_no_samples": audit.keeps_no_samples()}
    content["findings"] = [*content["findings"], *_on_journals(place)]
    return content | {"files": stored_files(place)}


def _on_journals(place: Path) -> list[str]:
    size = sum(path.stat().st_size for path in place.glob("service/*.journal"))
    if not size:
        return []
    return [
        f"The journal of a service ({size:,} bytes) says what each chunk has changed: where a chunk had one image of a "
        "class, that is its feature. The next checkpoint erases it, at most 30 seconds later while the service runs; "
        "after a crash, when it starts again."
    ]


def stored_files(place: Path) -> list[dict[str, Any]]:
    """Every file under a folder: its name, its size, and its content if prol wrote it."""

    def holds(name: str) -> str:
        matching = (content for pattern, content in _FILES.items() if fnmatchcase(name, pattern))
        return next(matching, "not known to prol: look")

    found = sorted(path for path in place.rglob("*") if path.is_file())
    named = [(path.relative_to(place).as_posix(), path.stat().st_size) for path in found]
    return [{"name": name, "bytes": size, "holds": holds(name)} for name, size in named]
