"""From the folder of a run to a saved learner."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prol import registry
from prol.learner import Learner
from prol.runs.checkpoints import Checkpoints, fixed_settings, restore_newest
from prol.runs.folder import RunFolder
from prol.runs.loading import load, open_saved_backbone
from prol.runs.saving import Origin, require_replaceable, save, without_small_classes
from prol.runs.setup import FORMAT

_MEASURED = ("faa", "caa", "forgetting")


def export(
    run: str | Path,
    out: str | Path,
    warn: Callable[[str], None],
    backbone: str | None = None,
    device: str = "auto",
    least_count: int = 0,
) -> Learner:
    """Writes and returns the learner of a finished run, or of the last undamaged checkpoint of an unfinished one.

    Args:
        backbone: the current name of the run's weights, if it has changed.
        least_count: classes of fewer images are omitted.
    """
    folder, out = RunFolder(run), Path(out).resolve()
    folder.require_run()
    require_replaceable(out)
    config = folder.read(folder.config)
    if config["format"] != FORMAT:
        raise ValueError(f"{folder.path} has run format {config['format']}, not {FORMAT}: export it with its own prol")
    learner, known, ended = learner_of(folder, config, warn, backbone, device)
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
    folder: RunFolder, config: Mapping[str, Any], warn: Callable[[str], None], backbone: str | None, device: str
) -> tuple[Learner, int | None, int]:
    """The learner of a run, the log's length at its checkpoint (None at the end), and the number of tasks ended."""
    if folder.status() != "finished":
        with folder.locked():
            return _at_checkpoint(folder, config, warn, backbone, device)
    if not folder.model.is_dir():
        raise FileNotFoundError(f"{folder.path} has no model/: its learner was not stored, so run it again")
    return load(folder.model, backbone, device=device), None, config["protocol"]["tasks"]


def _at_checkpoint(
    folder: RunFolder, config: Mapping[str, Any], warn: Callable[[str], None], backbone: str | None, device: str
) -> tuple[Learner, int, int]:
    kind = registry.method(config["method"])
    opened = open_saved_backbone(config, folder.path, backbone, device=device)
    learner = kind(opened, kind.read_options(config["options"]), config["seed"])
    cursor, _, offset = restore_newest(Checkpoints(folder.checkpoints), learner, fixed_settings(config), warn)
    if not cursor.chunks:
        raise ValueError(f"{folder.path} has no checkpoint yet: continue with `prol resume {folder.path}` first")
    return learner, offset, cursor.tasks_evaluated


def _images_learnt(events: Path, known: int | None) -> int:
    """Images of all steps in the log, or in its first `known` bytes: the rest belongs to lost work."""
    total = 0
    with events.open("rb") as log:
        for line in log:
            event = json.loads(line)
            if event["event"] == "ChunkLearnt":
                total += event["images"]
            if known is not None and log.tell() >= known:
                break
    return total


def _described(config: Mapping[str, Any], result: Mapping[str, Any] | None, tasks_ended: int) -> dict[str, Any]:
    """Data, protocol and results. Folders of this machine are private, and omitted."""
    data, protocol = config["dataset"], config["protocol"]
    return {
        "dataset": {
            name: data[name]
            for name in (
                "name",
                "classes",
                "train_images",
                "development",
                "limit_per_class",
                "labels_sha256",
                "licence",
            )
        },
        "protocol": protocol,
        "seed": config["seed"],
        "told": {name: value for name, value in config["told"].items() if isinstance(value, bool)},
        "clock": config["clock"],
        "finished": result is not None,
        "tasks_ended": tasks_ended,
        "result": None
        if result is None
        else {name: result["metrics"][name] for name in _MEASURED} | {"test_images": sum(result["test_sizes"])},
    }
